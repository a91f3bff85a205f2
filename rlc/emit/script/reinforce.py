"""The program of a stage that trains with reinforcement learning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rlc.algo import WEIGHTS, TorchFunction, advantage_functions, torch_function
from rlc.catalog import LossTraits, loss_traits, source_traits
from rlc.emit.script.common import (
    asked_model,
    assigned,
    constants,
    counted,
    ended,
    limits_of,
    main,
    opened,
    origin,
    rate_name,
    rate_of,
    when,
)
from rlc.emit.script.environments import environments
from rlc.emit.script.literals import CallText, Expression, literal, written
from rlc.emit.script.stitch import MARK
from rlc.explanation import loss_formula
from rlc.plan import ModelPlan, Plan, PolicyGradient, Rollouts, TeacherPlan, Training


def reinforcement_body(plan: Plan, stage: Training, path: str) -> str:
    """Return what is written for a stage alone, in a script at ``path``."""
    loss, folder = stage.of(PolicyGradient).loss, os.path.dirname(path)
    own, gap = None, ["", ""]
    if loss.program is not None:
        own = torch_function(loss.program, loss.name, loss_traits(loss).weighted)
    return "\n".join(
        [
            *constants(plan, stage),
            *_values(plan, stage, own),
            MARK,
            *when(own, "# fmt: off", own.source.rstrip("\n") if own else "", "# fmt: on", *gap),
            *(*environments(stage.of(Rollouts), plan.recipe, folder), *gap),
            *(*advantage_functions(stage.of(PolicyGradient).advantage), *gap),
            *(_plain_data(stage) if _is_plain(stage) else _data(stage, own)),
            *gap,
            *_train(plan, stage, os.path.basename(path), own),
            *main(),
        ]
    )


def variants(stage: Training) -> list[str]:
    """Return the modules of pieces that stand for others in the script of a stage."""
    source = stage.of(Rollouts)
    limited = source.sampling.max_prompt_tokens or source.sampling.max_episode_tokens
    of_tokens = any(source_traits(env.source).prompts == "own" for env in source.envs)
    chosen = {"limits": limited, "cookbook": of_tokens, "single": len(source.envs) == 1}
    return [name for name, wanted in chosen.items() if wanted]


def _values(plan: Plan, stage: Training, own: TorchFunction | None) -> Iterator[str]:
    source, length = stage.of(Rollouts), stage.of(PolicyGradient).aggregate.length
    by_turns, told = _by_turns(stage), origin(plan, stage, "batch.count")
    yield assigned("TURNS" if by_turns else "GROUPS", source.batch.count, told)
    yield from when(by_turns, assigned("PARALLEL", source.batch.parallel, "  # episodes at a time"))
    if "limits" in variants(stage):
        yield assigned("MAX_PROMPT_TOKENS", source.sampling.max_prompt_tokens)
        yield assigned("MAX_EPISODE_TOKENS", source.sampling.max_episode_tokens)
    yield assigned("RETRIES", source.on_error.retries, "  # of an episode that fails")
    yield from when(length, assigned("LENGTH", length))
    yield from when(own, assigned("LOSS_INPUTS", own.ranks if own else None))


def _is_plain(stage: Training) -> bool:
    """Return whether datums follow from episodes and advantages alone."""
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    loss, kind = loss_traits(objective.loss), objective.aggregate.kind
    by_task = "of_task" in WEIGHTS.get(kind, "")
    asked = objective.kl or objective.teacher or objective.loss.program or objective.loss.mean
    special = loss.reaches_prompt or loss.recorded or loss.per_sequence or loss.pull
    several = _by_turns(stage) or source.batch.updates > 1
    return not (asked or special or several or by_task)


def _head(stage: Training, signature: str) -> list[str]:
    """Return the beginning of the function that makes the datums of an update."""
    objective = stage.of(PolicyGradient)
    return [
        f"def {signature} -> list[tinker.Datum]:",
        f'    """The datums of an update, by {objective.aggregate.kind} of {objective.loss.name}.',
        "",
        *(f"    {line}" for line in loss_formula(objective.loss)),
        '    """',
    ]


def _selected(stage: Training) -> list[str]:
    """Return lines that leave out the episodes that a scheme does not keep."""
    scheme = stage.of(PolicyGradient).advantage
    return [
        *when(
            scheme.keep,
            "    keep = kept(episodes)",
            "    episodes = [one for one, left in zip(episodes, keep, strict=True) if left]",
        ),
        *when(
            scheme.require,
            "    if not required(episodes).all():",
            '        raise ValueError("an episode has no advantage: it stands alone")',
        ),
    ]


def _plain_data(stage: Training) -> list[str]:
    """Return the function that makes the datums of episodes."""
    objective = stage.of(PolicyGradient)
    weight = WEIGHTS.get(objective.aggregate.kind, "").replace("played", "episodes")
    value = "value[turn]" if objective.advantage.by_turn else "value"
    value = f"weight * {value}" if weight else value
    weighs = "len(turn.tokens) for one in episodes for turn in one.turns"
    read = ["logprobs=logprobs[1:]", "advantages=adv"]
    read = read if loss_traits(objective.loss).sampler_logprobs else ["weights=adv"]
    return [
        *_head(stage, "data_of(episodes: list[Episode])"),
        *_selected(stage),
        *when("total" in weight, f"    total = sum({weighs})"),
        "    data = []",
        "    for one, value in zip(episodes, advantages(episodes), strict=True):",
        *when("count" in weight, "        count = sum(len(turn.tokens) for turn in one.turns)"),
        *when(weight, f"        weight = {weight}"),
        "        for tokens, logprobs, turns in joined(one.turns):",
        "            turn = np.array(turns[1:])",
        f"            adv = np.where(turn >= 0, {value}, 0.0)",
        "            if adv.any():",
        f"                data.append({CallText('datum', ['tokens', *read])})",
        "    return data",
    ]


def _data(stage: Training, own: TorchFunction | None) -> list[str]:
    """Return the functions that find the sequences to train on, and make the datums of an update:
    other models, or several updates, come in between."""
    objective, by_turns = stage.of(PolicyGradient), _by_turns(stage)
    loss, weight = loss_traits(objective.loss), WEIGHTS.get(objective.aggregate.kind, "")
    per_sequence = objective.loss.by_sequence  # one loss, which counts as one token
    count = "len(own)" if per_sequence else "sum(one.count for one in own)"
    of_all = "len(own)" if per_sequence else "one.count for own in played for one in own"
    of_all += " for own in played" if per_sequence else ""
    share = ("weight" if weight else "1.0") + (" / one.count" if objective.loss.mean else "")
    times = f"({share}) * " if " " in share else f"{share} * "
    times = "" if share == "1.0" or loss.weighted else times
    made, indent = _datum(loss, own, share), 12 if loss.pull or loss.weighted else 16
    rows = "episodes, advantages(episodes)" + (", chosen" if by_turns else "")
    return [
        f"def trained({'step: int, ' * by_turns}episodes: list[Episode]) -> list[list[Trained]]:",
        '    """The sequences that are trained on, of each episode that has any."""',
        *_selected(stage),
        *when(by_turns, "    chosen = some_turns(episodes, TURNS, step)"),
        f"    rows = zip({rows}, strict=True)",
        f"    {'played =' if loss.recorded else 'return'} "
        "[own for row in rows if (own := sequences(*row))]",
        *when(loss.recorded, "    return [[trimmed(one) for one in own] for own in played]"),
        "",
        "",
        *_head(stage, "data_of(played: list[list[Trained]])"),
        *when("total" in weight, f"    total = sum({of_all})"),
        *when(
            "of_task" in weight,
            "    of_task = Counter[tuple[str, int]]()",
            "    for own in played:",
            f"        of_task[task_of(own)] += {count}",
        ),
        "    data = []",
        "    for own in played:",
        *when("count" in weight, f"        count = {count}"),
        *when(weight, f"        weight = {weight}"),
        "        for one in own:",
        f"            advantages = {times}one.advantages",
        *when(indent == 16, "            if advantages.any():"),
        f"{' ' * indent}{written(CallText('data.append', [made]), indent)}",
        "    return data",
    ]


def _datum(loss: LossTraits, own: TorchFunction | None, share: str) -> CallText:
    """Return the call that makes the datum of a sequence."""
    given: list[Expression] = ["one.tokens"]
    if own is not None:
        known = {"logq": "one.logprobs", "adv": "advantages", "ref": "one.ref"}
        items = [f"{literal(name)}: {text}" for name, text in known.items() if name in own.ranks]
        read = CallText("", items, "{}")
        given.append(CallText("**own_inputs", ["one", read, "LOSS_INPUTS"]))
        given += [f"weight={share}"] if loss.weighted else []
    elif loss.sampler_logprobs:
        given += ["logprobs=one.logprobs", "advantages=advantages"]
    else:
        given += ["weights=advantages"]
    made = CallText("datum", [*given, *when(loss.per_sequence, "sequence_ratio_mask=one.mask")])
    return CallText("with_replies", [made, "one"]) if loss.recorded else made


def _train(plan: Plan, stage: Training, name: str, own: TorchFunction | None) -> list[str]:
    several_envs = len(stage.of(Rollouts).envs) > 1
    return [
        "async def train(steps: int, metrics: str) -> None:",
        *opened(stage, name),
        *when(
            own,
            "    # Traced once; where a server has no custom losses, the SDK computes it here.",
            f"    own_loss = service.create_custom_loss({own and own.name}, LOSS_INPUTS).result()",
        ),
        *(f"    {scorer} = {asked_model(model)}" for scorer, model in _asked(stage)),
        "    envs = await environments(tokenizer)",
        *when(several_envs or _by_turns(stage), "    cursor = {env.name: 0 for env in envs}"),
        "    same = None",
        "    for step in range(1, steps + 1):",
        *_played(stage),
        *_learnt(stage, own),
        "        reward = fmean(episode.reward for episode in episodes)",
        '        measured = {"reward/mean": reward, "loss/sum": loss}',
        *ended(plan, stage),
    ]


def _by_turns(stage: Training) -> bool:
    return stage.of(Rollouts).batch.kind == "turns"


def _played(stage: Training) -> list[str]:
    """Return the lines that play the episodes of a step."""
    source, by_turns = stage.of(Rollouts), _by_turns(stage)
    loss = loss_traits(stage.of(PolicyGradient).loss)
    recorded = "record_stability_info=True" if loss.recorded else ""
    sampler = "Counted(sampler, used)" if limits_of(stage) else "sampler"
    numbers = "range((step - 1) * GROUPS, step * GROUPS)"
    tasks = f"[(envs[0], number) for number in {numbers}]"
    tasks = tasks if len(source.envs) == 1 else "next_tasks(envs, cursor, GROUPS)"
    return [
        f"        sampler = await training.save_weights_and_get_sampling_client({recorded})",
        "        if same is None:",
        "            same = await repeats(sampler, tokenizer)",
        f"        player = {'Counting' * by_turns}Player({sampler}, same)",
        *when(
            by_turns, "        episodes = await play_turns(player, envs, cursor, TURNS, PARALLEL)"
        ),
        *when(
            not by_turns,
            f"        tasks = {tasks}",
            "        episodes = await play_groups(player, tasks)",
        ),
        *when(
            source.on_error.then == "stop",
            "        if len(episodes) < sum(env.group for env, _ in tasks):",
            '            raise RuntimeError("an episode failed")',
        ),
    ]


def _learnt(stage: Training, own: TorchFunction | None) -> list[str]:
    """Return the lines that score the episodes of a step, and learn from them."""
    objective, updates = stage.of(PolicyGradient), stage.of(Rollouts).batch.updates
    loss, plain, several = loss_traits(objective.loss), _is_plain(stage), updates > 1
    gradient = CallText("training.forward_backward_custom", ["data", "own_loss"])
    if own is None:
        given = [objective.loss.name, *when(objective.loss.config, objective.loss.config)]
        gradient = CallText("training.forward_backward", ["data", *map(literal, given)])
    trained, indent = "episodes" if plain else "part" if several else "played", 12 if several else 8
    return [
        *when(not plain, f"        played = trained({'step, ' * _by_turns(stage)}episodes)"),
        *when(
            any(_asked(stage)) or loss.reaches_prompt,
            "        made = [one for own in played for one in own]",
        ),
        *_scored(stage),
        *when(loss.reaches_prompt, "        await anchored(training, made)"),
        *when(
            loss.reaches_prompt,
            *counted(stage, "prefill", "sum(len(one.tokens) - 1 for one in made)", 8),
        ),
        *rate_of(stage, 8),
        "        loss = 0.0",
        *when(several, f"        for part in parts_of(played, {updates}):"),
        f"{' ' * indent}if data := data_of({trained}):",
        f"{' ' * (indent + 4)}{written(gradient.with_start('gradient = '), indent + 4)}",
        f"{' ' * indent}    loss += await update(training, gradient, {rate_name(stage)})",
        *counted(stage, "trained", "sum(one.model_input.length for one in data)", indent + 4),
    ]


def _asked(stage: Training) -> Iterator[tuple[str, ModelPlan]]:
    """Yield the models that score what was sampled, with their names in a script."""
    objective = stage.of(PolicyGradient)
    if objective.kl is not None:
        yield "reference", objective.kl.reference.model
    yield from ((_teacher(one), one.model.model) for one in objective.teacher)


def _teacher(teacher: TeacherPlan) -> str:
    return f"teacher_of_{teacher.name}" if teacher.name else "teacher"


def _scored(stage: Training) -> Iterator[str]:
    """Yield lines that ask other models, and take their distances off the advantages."""
    objective = stage.of(PolicyGradient)
    if (kl := objective.kl) is not None:
        yield "        await score(reference, made)"
        yield from when(kl.coef, _penalty("made", kl.coef, kl.discount))
    for teacher in objective.teacher:
        mine = f"of_{teacher.name}" if teacher.name else "made"
        own = f"[one for one in made if one.episode.env == {literal(teacher.name)}]"
        yield from when(teacher.name, f"        {mine} = {own}")
        yield f"        await score({_teacher(teacher)}, {mine})"
        yield _penalty(mine, teacher.coef, teacher.discount, "centred=False")


def _penalty(made: str, coef: float, discount: float, *more: str) -> str:
    given: Sequence[str] = [made, literal(coef), *when(discount, f"discount={discount!r}"), *more]
    return f"        {CallText('penalise', given)}"
