"""Rules on models: the one that is trained, and references, teachers and players beside it."""

from __future__ import annotations

import os
from typing import Any

from rlc.algo import reads
from rlc.catalog import (
    NO_ADVANTAGE,
    find_model,
    find_retired,
    is_chat,
    loss_traits,
    model_names,
    played_as,
    provider,
    renderer_fits,
    reward_models_of,
    service_of,
    source_traits,
    tokenizer_of,
    with_role,
)
from rlc.check.rules.view import StageView, rule, teacher_paths
from rlc.check.scope import advice_for_file, closest, known_values
from rlc.lang import Label
from rlc.plan import (
    LOCAL,
    EnvPlan,
    Samples,
    is_text_file,
    teacher_of,
)
from rlc.plan.leaves import asked_models


@rule("model")
def _model_can_be_trained(view: StageView) -> None:
    model, rank, known = view.model, view.model.lora_rank, find_model(view.model.base)
    if rank & (rank - 1):
        below, above = 1 << (rank.bit_length() - 1), 1 << rank.bit_length()
        message = f"the LoRA rank {rank} is not a power of two"
        view.error("RL0401", "model.lora_rank", message, f"use {below} or {above}")
    elif known and known.max_rank and known.service == model.service and rank > known.max_rank:
        message = f"`{known.base}` takes a LoRA rank of at most {known.max_rank}; this is {rank}"
        view.error("RL0401", "model.lora_rank", message, f"use {known.max_rank}")
    if not (model.train_mlp or model.train_attn or model.train_unembed):
        message = "no layer of this model is trained"
        advice = "set one of train_mlp, train_attn, train_unembed to true"
        view.error("RL0402", "model.train_unembed", message, advice)
    if known is not None and not renderer_fits(model.base, model.renderer):
        message = f"`{model.renderer}` writes the chats of other models than `{model.base}`"
        listed = " or ".join(f"`{name}`" for name in known.renderers)
        view.error("RL0325", "model.renderer", message, f"leave `renderer` out, or use {listed}")
    if model.weights is not None:
        _state_is_on_service(view, "model.weights", model.weights)


def _state_is_on_service(view: StageView, path: str, state: str) -> None:
    service, other = view.model.service, service_of(state)
    if other is not None and not state.startswith(provider(service).scheme):
        message = f'"{state}" is on the service `{other}`, and this model is on `{service}`'
        view.error("RL0306", path, message, "a state stays on the service that saved it")


@rule("model")
def _asked_models_are_on_its_service(view: StageView) -> None:
    service, reported = view.model.service, set[str]()
    for path, state in asked_models(view.parts):
        name = state.model.name
        if state.model.service == service or name in reported:
            continue
        reported.add(name)
        advice = "one job runs on one service: take a model that is there"
        if path == "kl.reference":
            advice = f"usual is the model itself before training: `{view.model.name}.base`"
        elif ".judges." in path:
            advice += ", or an `endpoint(…)`"
        view.error("RL0306", path, f"`{name}` is not on the service `{service}`", advice)


@rule("model", "kl")
def _reference_fits(view: StageView) -> None:
    state, model, path = view.kl and view.kl.reference, view.model, "kl.reference"
    if state is None:
        return
    name, weights = state.model.base, state.model.weights
    advice = f"usual is the model itself before training: `reference({model.name}.base, …)`"
    if state.model.service != model.service:
        return  # another rule says so
    declared = state.model.name != name  # its base was found
    if weights is not None and "://" in weights:
        _state_is_on_service(view, path, weights)
    elif name == model.base:
        return
    elif not declared and (retired := find_retired(name)) is not None:
        message = f'the service no longer has "{name}" (since {retired.since})'
        view.error("RL0108", path, message, advice)
    elif not declared and find_model(name) is None and not os.path.isdir(view.located(name)):
        message = f'there is no model "{name}" to compare with'
        likely = closest(name, model_names())
        view.error("RL0107", path, message, f"did you mean `{likely[0]}`?" if likely else advice)
    elif not declared and _home(name) != model.service:
        message = f'the reference "{name}" is not on the service `{model.service}`'
        view.error("RL0306", path, message, advice)
    elif _have_other_tokens(view, name, model.base):
        label = Label(view.at("model"), f"has the tokens of `{model.base}`")
        message = f'"{name}" has other tokens, so its logprobs are of another text'
        view.error("RL0326", path, message, advice, label)


def _have_other_tokens(view: StageView, one: str, other: str) -> bool:
    if find_model(one) is not None or find_model(other) is not None:
        known = {tokenizer_of(one), tokenizer_of(other)}
        return None not in known and len(known) == 2
    import json  # few recipes compare two folders

    vocabularies = []
    for folder in (one, other):
        try:
            path = os.path.join(view.located(folder), "tokenizer.json")
            with open(path, encoding="utf-8") as file:
                vocabularies.append(json.load(file)["model"]["vocab"])
        except (OSError, ValueError, LookupError, TypeError):  # it may come in another form
            return False
    return bool(vocabularies[0] != vocabularies[1])


def _home(base: str) -> str:
    known = find_model(base)
    return known.service if known else LOCAL


@rule("model")
def _reward_models_read_the_tokens(view: StageView) -> None:
    played = [(f"envs.{env.name}", env, view.model) for env in view.parts.get("envs", ())]
    for name in ("data", "heldout"):
        data: Any = view.parts.get(name)
        if getattr(data, "env", None) is not None and getattr(data, "model", None) is not None:
            played.append((f"{name}.env", data.env, data.model.model))
    for path, env, model in played:
        for at, _, judge in reward_models_of(env):
            base, service = judge.model.model.base, judge.model.model.service
            known = base == model.base or service != model.service  # another rule says so
            if known or not _have_other_tokens(view, base, model.base):
                continue
            message = f"`{judge.name}` reads the tokens of `{model.base}`, and `{base}` has others"
            advice = "let the stage that it is learnt in train a model of the same family"
            view.error("RL0740", f"{path}.{at}.model", message, advice)


@rule("model", "teacher")
def _teacher_fits(view: StageView) -> None:
    for path, teacher in teacher_paths(view):
        model, own = teacher.model.model, view.model
        if model.service != own.service:
            continue  # another rule says so
        if model.base != own.base and _have_other_tokens(view, model.base, own.base):
            label = Label(view.at("model"), f"has the tokens of `{own.base}`")
            message = f"`{model.base}` has other tokens, so it cannot score those of this model"
            advice = (
                f"use a teacher of the same family, or learn from what it writes: an `sft` stage "
                f"with `data = samples({model.name}, …)`"
            )
            view.error("RL0740", f"{path}.model", message, advice, label)


@rule("teacher", "envs", "advantage")
def _environments_are_taught(view: StageView) -> None:
    """Without an advantage, each environment needs a teacher."""
    names = [env.name for env in view.envs]
    for path, teacher in teacher_paths(view):
        if teacher.name is not None and teacher.name not in names:
            message = f"no environment of this stage is called `{teacher.name}`"
            view.error("RL0741", path, message, known_values(names, teacher.name))
    if view.teacher and view.advantage == NO_ADVANTAGE:
        for name in names:
            if teacher_of(view.teacher, name) is None:
                message = f"nothing teaches `{name}`: it has no teacher, and no `advantage` counts"
                advice = "give it a teacher, or the stage an `advantage`"
                view.error("RL0742", "teacher", message, advice)
                return


@rule("teacher", "loss", "advantage")
def _teacher_counts(view: StageView) -> None:
    is_read = loss_traits(view.loss).reference or reads(view.advantage, "teacher")
    for path, teacher in teacher_paths(view):
        if not teacher.coef and not is_read:
            message = "the teacher reads every sequence, and a `coef` of 0 changes nothing"
            advice = (
                "give it a `coef`, remove it, or read `ref` in a loss of your own, `teacher` in "
            )
            advice += "an advantage"
            view.error("RL0743", f"{path}.coef", message, advice)


@rule("teacher", "model", "after", "advantage", "loss")
def _teacher_is_another(view: StageView) -> None:
    """A teacher that the student starts from can teach it only what the prompt adds."""
    start = view.model.base, view.model.weights, view.after
    for path, teacher in teacher_paths(view):
        model = teacher.model.model
        same = (model.base, model.weights, teacher.model.after) == start
        if not same or teacher.system is not None or teacher.demonstration is not None:
            continue
        message = "the teacher is what this stage starts from, so it agrees with every token"
        if view.advantage == NO_ADVANTAGE and not loss_traits(view.loss).reference:
            advice = "nothing would be learnt: take a better model, or show this one a `system`"
            view.error("RL0744", f"{path}.model", message, advice)
        else:
            advice = "it only holds the model back, as `kl = reference(…)` does: is that meant?"
            view.warning("RL0744", f"{path}.model", message, advice)


@rule("teacher", "envs")
def _prompts_can_be_shown(view: StageView) -> None:
    """Only a chat that the renderer makes can begin in another way."""
    for path, teacher in teacher_paths(view):
        given = [n for n in ("system", "demonstration") if getattr(teacher, n) is not None]
        for env in view.envs if given else ():
            if teacher.name not in (None, env.name):
                continue
            at = f"{path}.{given[0]}"
            if (why := _fixed_prompts(env)) is not None:
                message = f"the teacher cannot be shown `{env.name}` in another way: {why}"
                advice = "use a chat: `|> chat()`, or prompts from `rows()` or `problems()`"
                view.error("RL0745", at, message, advice)
            elif "demonstration" in given and not source_traits(env.source).graded:
                message = f"`{env.name}` has no rows, of which one field could be a demonstration"
                advice = "demonstrations come with the rows of `rows()` and `problems()`"
                view.error("RL0746", f"{path}.demonstration", message, advice)
            elif teacher.system and (chat := with_role(env, "chat")) and chat.args.get("system"):
                label = Label(view.at(f"envs.{env.name}.wrappers.{chat.name}.args.system"), "this")
                message = f"the teacher reads its own system message in place of `{env.name}`'s"
                advice = "fine if it is meant: the student keeps the environment's"
                view.warning("RL0747", f"{path}.system", message, advice, label)


@rule("teacher")
def _system_message_can_be_read(view: StageView) -> None:
    for path, teacher in teacher_paths(view):
        if teacher.system is None or not is_text_file(teacher.system):
            continue
        if not os.path.isfile(file := view.located(teacher.system)):
            message = f'there is no file "{file}"'
            view.error("RL0001", f"{path}.system", message, advice_for_file(file))
        elif view.reader is not None:
            from rlc.data import DataError, text_of

            try:
                text_of(file)
            except DataError as error:
                advice = "it is a text in UTF-8, the system message itself"
                view.error("RL0753", f"{path}.system", error.what, advice)


def _fixed_prompts(env: EnvPlan) -> str | None:
    """Return why the chats of an environment cannot begin in another way; None if they can."""
    player = played_as(env)
    if source_traits(player).prompts == "own":
        return f"`{player}()` makes its own prompts"
    if not is_chat(env):
        return "its prompts are templates, and no chats"
    game = with_role(env, "game")
    return None if game is None else f"`{game.name}()` has prompts of its own"


@rule("data", "model")
def _samples_can_be_learnt(view: StageView) -> None:
    samples, own = view.data, view.model
    if not isinstance(samples, Samples):
        return
    env, model = samples.env, samples.model.model
    if samples.keep.kind == "best" and samples.size == 1:
        message = "each task is played once, so its best episode is any episode"
        advice = "play each more often, for example `samples_per_task = 4`"
        view.error("RL0750", "data.keep", message, advice)
    others = model.renderer != own.renderer or _have_other_tokens(view, model.base, own.base)
    if samples.top_k is not None and others:
        message = (
            f"`{model.name}` and `{own.name}` do not have the same tokens and chats, so the shares "
            "of its most likely tokens cannot be learnt"
        )
        advice = "leave `top_k` out: what it writes can be, in the student's own tokens"
        view.error("RL0754", "data.top_k", message, advice)
    why = _fixed_prompts(env)
    if samples.without is not None and why is not None:
        message = f"`{env.name}` cannot be shown without its system message: {why}"
        view.error("RL0745", "data.without", message, "use a chat: `|> chat()`")
    elif samples.without is not None and not _has_system(view, env):
        message = f"`{env.name}` has no system message that could be left out"
        view.error("RL0751", "data.without", message, "`chat(system = …)` gives it one")
    elif why is not None and others:
        message = (
            f"`{own.name}` cannot be shown the chats of `{model.name}` in its own tokens: {why}"
        )
        view.error("RL0745", "data.model", message, "use a chat: `|> chat()`")


def _has_system(view: StageView, env: EnvPlan) -> bool:
    """Return whether prompts may have a system message: of `chat()`, or of rows, as far as these
    were read."""
    if (chat := with_role(env, "chat")) is not None and chat.args.get("system"):
        return True
    if source_traits(env.source).prompts == "text":
        return False
    from rlc.check.rules.tasks import own_rows

    rows = own_rows(view, env)
    if rows is None or not os.path.isfile(view.located(rows.file)) or not rows.read().whole:
        return True
    sound = rows.sound(len(rows.read().rows))
    asked = (message for row in sound for message in rows.asked(row.fields))
    return not sound or any(message["role"] == "system" for message in asked)


@rule("teacher", "envs", "model", "sampling")
def _teacher_reads_all(view: StageView) -> None:
    for path, teacher in teacher_paths(view):
        context = teacher.model.model.context
        for env in view.envs:
            if context is None or teacher.name not in (None, env.name):
                continue
            from rlc.pricing import rollout_shape  # most stages have no teacher

            shape = rollout_shape(env, view.model, view.sampling, "expected")
            longest = max(one.prompt_at(one.turns - 1) + one.reply for one in shape)
            if longest <= context:
                continue
            message = (
                f"episodes of `{env.name}` have about {longest:,.0f} tokens, and the teacher "
                f"reads {context:,}"
            )
            advice = "what is beyond that is not distilled: take a teacher with a larger context"
            view.warning("RL0748", f"{path}.model", message, advice)
            return
