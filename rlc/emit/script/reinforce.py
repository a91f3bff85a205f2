"""The program of a stage that trains with reinforcement learning."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rlc.algo import TorchFunction, torch_function
from rlc.catalog import loss_traits
from rlc.emit.script.advantages import advantages
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
)
from rlc.emit.script.environments import environments
from rlc.emit.script.literals import Call, literal, written
from rlc.emit.script.stitch import MARK
from rlc.explanation import loss_formula
from rlc.plan import ModelPlan, Plan, PolicyGradient, Rollouts, TeacherPlan, Training

# What each token of an episode weighs, by aggregation; `count` are the tokens of one, `total` of all.
WEIGHTS = {
    "token_mean": "1.0 / total",
    "seq_mean_token_sum": "1.0 / len(played)",
    "seq_mean_token_mean": "1.0 / (len(played) * count)",
    "seq_mean_token_sum_norm": "1.0 / (len(played) * LENGTH)",
    "prompt_mean": "1.0 / (len(of_task) * of_task[task_of(own)])",
}


def reinforcement_body(plan: Plan, stage: Training, path: str) -> str:
    """Return what is written for a stage alone, in a script at ``path``."""
    own, folder = _own_loss(stage), os.path.dirname(path)
    parts = [*constants(plan, stage), *_values(plan, stage, own), MARK]
    if own is not None:
        parts += ["# fmt: off", own.source.rstrip("\n"), "# fmt: on", "", ""]
    parts += [*environments(stage.of(Rollouts), plan.recipe, folder), "", ""]
    parts += [*advantages(stage.of(PolicyGradient).advantage), "", ""]
    if _is_plain(stage):
        parts += [*_plain_data(stage), "", ""]
    else:
        parts += [*_trained(stage), "", "", *_data(stage, own), "", ""]
    return "\n".join([*parts, *_train(plan, stage, os.path.basename(path), own), *main()])


def variants(stage: Training) -> list[str]:
    """Return the modules of pieces that stand for others in the script of a stage."""
    source = stage.of(Rollouts)
    limited = source.sampling.max_prompt_tokens or source.sampling.max_episode_tokens
    of_tokens = any(env.source == "cookbook" for env in source.envs)
    chosen = {"limits": limited, "cookbook": of_tokens, "single": len(source.envs) == 1}
    return [name for name, wanted in chosen.items() if wanted]


def _own_loss(stage: Training) -> TorchFunction | None:
    loss = stage.of(PolicyGradient).loss
    if loss.program is None:
        return None
    return torch_function(loss.program, loss.name, loss_traits(loss).weighted)


def _values(plan: Plan, stage: Training, own: TorchFunction | None) -> Iterator[str]:
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    told = origin(plan, stage, "batch.count")
    if source.batch.kind == "groups":
        yield assigned("GROUPS", source.batch.count, told)
    else:
        yield assigned("TURNS", source.batch.count, f"{told}; trained on in each step")
        yield assigned("PARALLEL", source.batch.parallel, "  # episodes side by side")
    if "limits" in variants(stage):
        yield assigned("MAX_PROMPT_TOKENS", source.sampling.max_prompt_tokens)
        yield assigned("MAX_EPISODE_TOKENS", source.sampling.max_episode_tokens)
    yield assigned("RETRIES", source.on_error.retries, "  # of an episode that fails")
    if objective.aggregate.length:
        yield assigned("LENGTH", objective.aggregate.length)
    if own is not None:
        yield assigned("LOSS_INPUTS", own.ranks)


def _trained(stage: Training) -> Iterator[str]:
    """The function that finds the sequences to train on."""
    by_turns = stage.of(Rollouts).batch.kind == "turns"
    recorded = loss_traits(stage.of(PolicyGradient).loss).recorded
    yield f"def trained({'step: int, ' * by_turns}episodes: list[Episode]) -> list[list[Trained]]:"
    yield '    """The sequences that are trained on, of each episode that has any."""'
    yield from _selected(stage)
    rows = "episodes, advantages(episodes)"
    if by_turns:
        yield "    chosen = some_turns(episodes, TURNS, step)"
        rows += ", chosen"
    yield f"    rows = zip({rows}, strict=True)"
    yield "    played = [own for row in rows if (own := sequences(*row))]"
    yield f"    return {'[[trimmed(one) for one in own] for own in played]' if recorded else 'played'}"


def _is_plain(stage: Training) -> bool:
    """Return whether datums follow from episodes and advantages alone."""
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    loss, kind = loss_traits(objective.loss), objective.aggregate.kind
    asked = objective.kl or objective.teacher or objective.loss.program or objective.loss.mean
    special = loss.reaches_prompt or loss.recorded or loss.per_sequence or loss.pull
    several = source.batch.kind == "turns" or source.batch.updates > 1 or kind == "prompt_mean"
    return not (asked or special or several)


def _plain_data(stage: Training) -> Iterator[str]:
    """The function that makes the datums of episodes."""
    objective = stage.of(PolicyGradient)
    scheme, weight = objective.advantage, WEIGHTS.get(objective.aggregate.kind, "")
    weight, count = weight.replace("played", "episodes"), "len(turn.tokens) for turn in one.turns"
    yield from _head(stage, "data_of(episodes: list[Episode])")
    yield from _selected(stage)
    if "total" in weight:
        yield f"    total = sum({count.replace('turn in', 'one in episodes for turn in')})"
    yield "    data = []"
    yield "    for one, value in zip(episodes, advantages(episodes), strict=True):"
    if "count" in weight:
        yield f"        count = sum({count})"
    if weight:
        yield f"        weight = {weight}"
    yield "        for tokens, logprobs, turns in joined(one.turns):"
    yield "            turn = np.array(turns[1:])"
    of_token = ("weight * " if weight else "") + ("value[turn]" if scheme.by_turn else "value")
    yield f"            adv = np.where(turn >= 0, {of_token}, 0.0)"
    yield "            if adv.any():"
    read = ["logprobs=logprobs[1:]", "advantages=adv"]
    read = read if loss_traits(objective.loss).sampler_logprobs else ["weights=adv"]
    yield f"                data.append({Call('datum', ['tokens', *read])})"
    yield "    return data"


def _head(stage: Training, signature: str) -> Iterator[str]:
    objective = stage.of(PolicyGradient)
    yield f"def {signature} -> list[tinker.Datum]:"
    yield f'    """The datums of an update, by {objective.aggregate.kind} of {objective.loss.name}.'
    yield ""
    yield from (f"    {line}" for line in loss_formula(objective.loss))
    yield '    """'


def _selected(stage: Training) -> Iterator[str]:
    """Lines that leave out the episodes that a scheme does not keep."""
    scheme = stage.of(PolicyGradient).advantage
    if scheme.keep is not None:
        yield "    keep = kept(episodes)"
        yield "    episodes = [one for one, left in zip(episodes, keep, strict=True) if left]"
    if scheme.require is not None:
        yield "    if not required(episodes).all():"
        yield '        raise ValueError("an episode has no advantage: it stands alone")'


def _data(stage: Training, own: TorchFunction | None) -> Iterator[str]:
    """The function that makes the datums of an update."""
    objective = stage.of(PolicyGradient)
    loss, kind = loss_traits(objective.loss), objective.aggregate.kind
    weight = WEIGHTS.get(kind, "")
    count = "len(own)" if objective.loss.by_sequence else "sum(one.count for one in own)"
    yield from _head(stage, "data_of(played: list[list[Trained]])")
    if "total" in weight:
        of_all = (
            "for own in played"
            if objective.loss.by_sequence
            else "for own in played for one in own"
        )
        yield f"    total = sum({'len(own)' if objective.loss.by_sequence else 'one.count'} {of_all})"
    if "of_task" in weight:
        yield "    of_task = Counter[tuple[str, int]]()"
        yield "    for own in played:"
        yield f"        of_task[task_of(own)] += {count}"
    yield "    data = []"
    yield "    for own in played:"
    if "count" in weight:
        yield f"        count = {count}"
    if weight:
        yield f"        weight = {weight}"
    yield "        for one in own:"
    share = "weight" if weight else "1.0"
    share += " / one.count" if objective.loss.mean else ""
    times = "" if share == "1.0" else f"({share}) * " if " " in share else f"{share} * "
    if loss.weighted:
        times = ""
    yield f"            advantages = {times}one.advantages"
    arguments = ["one.tokens"]
    if own is not None:
        known = {"logq": "one.logprobs", "adv": "advantages", "ref": "one.ref"}
        items = [f"{literal(name)}: {text}" for name, text in known.items() if name in own.ranks]
        read = Call("own_inputs", ["one", f"{{{', '.join(items)}}}", "LOSS_INPUTS"])
        arguments += [f"**{read}", *([f"weight={share}"] if loss.weighted else [])]
    elif loss.sampler_logprobs:
        arguments += ["logprobs=one.logprobs", "advantages=advantages"]
    else:
        arguments += ["weights=advantages"]
    arguments += ["sequence_ratio_mask=one.mask"] if loss.per_sequence else []
    made, indent = Call("datum", arguments), 12
    if not (loss.pull or loss.weighted):
        yield "            if advantages.any():"
        indent = 16
    if loss.recorded:
        yield f"{' ' * indent}made = {written(made, indent, 7)}"
        yield f"{' ' * indent}data.append(with_replies(made, one))"
    else:
        yield f"{' ' * indent}{written(Call('data.append', [made]), indent)}"
    yield "    return data"


def _train(plan: Plan, stage: Training, name: str, own: TorchFunction | None) -> Iterator[str]:
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    loss, by_turns = loss_traits(objective.loss), source.batch.kind == "turns"
    yield "async def train(steps: int, metrics: str) -> None:"
    yield from opened(stage, name)
    if own is not None:
        yield "    # Traced once; where a server has no custom losses, the SDK computes it here."
        yield f"    own_loss = service.create_custom_loss({own.name}, LOSS_INPUTS).result()"
    for asked, model in _asked(stage):
        yield f"    {asked} = {asked_model(model)}"
    yield "    envs = await environments(tokenizer)"
    if by_turns or len(source.envs) > 1:
        yield "    cursor = {env.name: 0 for env in envs}"
    yield "    same = None"
    yield "    for step in range(1, steps + 1):"
    if loss.recorded:
        yield "        # Its loss needs to know which sampled sequence each token comes from."
    recorded = ["record_stability_info=True"] if loss.recorded else []
    yield f"        sampler = {Call('await training.save_weights_and_get_sampling_client', recorded)}"
    yield "        if same is None:"
    yield "            same = await repeats(sampler, tokenizer)"
    sampler = "Counted(sampler, used)" if limits_of(stage) else "sampler"
    yield f"        player = {'Counting' * by_turns}Player({sampler}, same)"
    if by_turns:
        yield "        episodes = await play_turns(player, envs, cursor, TURNS, PARALLEL)"
    else:
        if len(source.envs) == 1:
            numbers = "range((step - 1) * GROUPS, step * GROUPS)"
            yield f"        tasks = [(envs[0], number) for number in {numbers}]"
        else:
            yield "        tasks = next_tasks(envs, cursor, GROUPS)"
        yield "        episodes = await play_groups(player, tasks)"
        if source.on_error.then == "stop":
            yield "        if len(episodes) < sum(env.group for env, _ in tasks):"
            yield '            raise RuntimeError("an episode failed")'
    if plain := _is_plain(stage):
        yield "        loss = 0.0"
    else:
        yield f"        played, loss = trained({'step, ' * by_turns}episodes), 0.0"
    if objective.kl or objective.teacher or loss.reaches_prompt:
        yield "        made = [one for own in played for one in own]"
    yield from _scored(stage)
    if loss.reaches_prompt:
        yield "        await anchored(training, made)"
        yield from counted(stage, "prefill", "sum(len(one.tokens) for one in made)", 8)
    yield from rate_of(stage, 8)
    several = source.batch.updates > 1
    if several:
        yield f"        for part in parts_of(played, {source.batch.updates}):"
    indent = " " * (12 if several else 8)
    yield f"{indent}if data := data_of({'episodes' if plain else 'part' if several else 'played'}):"
    if own is not None:
        yield f"{indent}    gradient = training.forward_backward_custom(data, own_loss)"
    else:
        config = [literal(objective.loss.config)] if objective.loss.config else []
        arguments = ["data", literal(objective.loss.name), *config]
        yield f"{indent}    gradient = {Call('training.forward_backward', arguments)}"
    yield f"{indent}    loss += await update(training, gradient, {rate_name(stage)})"
    trained = "sum(one.model_input.length for one in data)"
    yield from counted(stage, "trained", trained, len(indent) + 4)
    yield "        reward = fmean(episode.reward for episode in episodes)"
    yield '        measured = {"reward/mean": reward, "loss/sum": loss}'
    yield from ended(plan, stage)


def _asked(stage: Training) -> Iterator[tuple[str, ModelPlan]]:
    """The models that score what was sampled, by their names in a script."""
    objective = stage.of(PolicyGradient)
    if objective.kl is not None:
        yield "reference", objective.kl.reference.model
    for teacher in objective.teacher:
        yield _teacher(teacher), teacher.model.model


def _teacher(teacher: TeacherPlan) -> str:
    return f"teacher_of_{teacher.name}" if teacher.name else "teacher"


def _scored(stage: Training) -> Iterator[str]:
    """Lines that ask other models, and take their distances off the advantages."""
    objective = stage.of(PolicyGradient)
    if (kl := objective.kl) is not None:
        yield "        await score(reference, made)"
        if kl.coef:
            arguments = [
                "made",
                literal(kl.coef),
                *([f"discount={kl.discount!r}"] * bool(kl.discount)),
            ]
            yield f"        {Call('penalise', arguments)}"
    for teacher in objective.teacher:
        name, mine = _teacher(teacher), "made"
        if teacher.name:
            mine = f"of_{teacher.name}"
            yield f"        {mine} = [one for one in made if one.episode.env == {literal(teacher.name)}]"
        yield f"        await score({name}, {mine})"
        arguments = [mine, literal(teacher.coef), "centred=False"]
        arguments += [f"discount={teacher.discount!r}"] if teacher.discount else []
        yield f"        {Call('penalise', arguments)}"
