"""How much a job takes: what a stage collects and trains on, costs, time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from rlc.catalog import (
    AGENT,
    GRADER,
    REQUIRED,
    Param,
    find_builtin,
    makes_text,
    max_turns,
    preference_traits,
    prices_as_of,
    renderer_keeps_prefix,
    seats_of,
    with_role,
)
from rlc.explanation.formulas.distillation import sampled
from rlc.explanation.layout import Lines, count, dollars, wrapped
from rlc.plan import (
    ANY,
    AnyData,
    Demonstrations,
    EnvPlan,
    Evaluation,
    FromData,
    GraderPlan,
    Likelihood,
    ModelPlan,
    Plan,
    PlayPlan,
    PolicyGradient,
    PreferenceLoss,
    PreferredPairs,
    Rollouts,
    Samples,
    StagePlan,
    Table,
    Training,
    barriers,
    elapsed,
    is_training,
    show,
    takes_what_is_ready,
)
from rlc.plan.leaves import children_of
from rlc.pricing import KINDS, LEVELS, Money, StageCost, bill_rows, extends_prefix, shares
from rlc.pricing.critical_path import Latencies, completion_times, critical_path


def size_lines(stage: StagePlan, cost: StageCost) -> Lines:
    """Groups, rollouts, turns, tokens, and what becomes of an episode."""
    for sentence in _SENTENCES[stage](stage, cost):
        yield from wrapped(sentence, hang=2)
    tokens = round(cost.step_tokens["high"].total)
    yield f"at most {tokens:,} tokens {'an' if cost.kind == 'eval' else 'a'} {cost.unit}"


def pipeline(env: EnvPlan) -> str:
    """An environment as a recipe writes it, without the arguments that are defaults."""
    source = find_builtin("env", env.source)
    params = source.params if source else ()
    if source is not None and source.more is not None:
        params += source.more(env.id).params
    args = env.args | ({GRADER: env.graders} if env.graders else {})
    if env.agent is not None:
        calls = [_agent(env, _call(env.source, params, env.args, env.id))]
    else:
        calls = [_call(env.source, params, args, env.id)]
    for wrapper in env.wrappers:
        builtin = find_builtin("wrapper", wrapper.name)
        calls.append(_call(wrapper.name, builtin.params if builtin else (), wrapper.args))
    if env.play is not None:
        calls.append(f"play(against = {opponent_of(env.play)}{_seat(env.play)})")
    return " |> ".join(calls)


def _agent(env: EnvPlan, tasks: str) -> str:
    """An agent as a recipe writes it, with its tasks."""
    made = find_builtin("env", AGENT)
    assert made is not None
    given = {
        name: part for name, part in (children_of(env.agent) or {}).items() if part is not None
    }
    program = _call(AGENT, made.params, given | ({GRADER: env.graders} if env.graders else {}))
    return f"{program.removesuffix(')')}, tasks = {tasks})"


def opponent_of(play: PlayPlan) -> str:
    """Who plays against the seats that are trained, as a recipe names it."""
    if play.past is not None:
        return f"past(every = {play.past.every})"
    if (script := play.script) is not None:
        builtin = find_builtin("opponent", script.player)
        given = {"args": script.args} if script.args else {}
        return _call(script.player, builtin.params if builtin else (), given, script.function)
    if play.opponent is None:
        return "self"
    return play.opponent.after or play.opponent.model.name


def _seat(play: PlayPlan) -> str:
    if play.seat in (None, ANY):
        return ""
    return f', seat = "{play.seat}"'


def _call(
    name: str, params: tuple[Param, ...], args: Mapping[str, Any], first: str | None = None
) -> str:
    by_name = {param.name: param for param in params}

    def written(param: Param | None, value: Any) -> str:
        if param is not None and param.type == "split" and isinstance(value, Mapping):
            part, own = value["part"], {key: v for key, v in value.items() if key != "part"}
            made = find_builtin("split", part)
            return _call(part, made.params if made else (), own)
        if param is not None and param.type == "grader":
            return _graders(value)
        if param is not None and (param.type == "word" or param.is_word(value)):
            return show(value, "word")
        return show(value, "string" if isinstance(value, str) else "any")

    given = [] if first is None else [written(params[0] if params else None, first)]
    for key, value in args.items():
        param = by_name.get(key)
        if param is not None and param.default == value:
            continue
        required = param is not None and param.default is REQUIRED
        shown = written(param, value)
        given.append(shown if required else f"{key} = {shown}")
    return f"{name}({', '.join(given)})"


def _graders(graders: Sequence[GraderPlan]) -> str:
    """Graders as a recipe writes them: one alone, or a record."""
    parts = {}
    for part in graders:
        builtin = find_builtin("grader", part.grader)
        call = part.grader
        if builtin is not None and not builtin.word:
            call = _call(part.grader, builtin.params, part.args)
        parts[part.name] = call if part.weight == 1 else f"{show(part.weight, 'float')} * {call}"
    if len(parts) == 1:
        return "".join(parts.values())
    return f"{{ {'  '.join(f'{name} = {part}' for name, part in parts.items())} }}"


def collected(stage: StagePlan) -> str:
    """Return what one step takes, or one evaluation: ``16 groups of 8: 128 rollouts``."""
    return _COLLECTED[stage](stage)


def _examples(stage: Training) -> str:
    return f"{count(stage.of(FromData).batch, 'example')} a step"


def _compared(stage: Training) -> str:
    labelled = preference_traits(stage.of(PreferenceLoss).loss.name).labelled
    what = "labelled reply" if labelled else "pair"
    return f"{count(stage.of(FromData).batch, what)} a step".replace("replys", "replies")


def _tasks(stage: Evaluation) -> str:
    samples = f", {count(stage.samples, 'sample')} of each" if stage.samples > 1 else ""
    episodes = count(stage.tasks * stage.samples, "episode")
    return f"{count(stage.tasks, 'task')}{samples}: {episodes} an evaluation"


def _rollouts(stage: Training) -> str:
    source = stage.of(Rollouts)
    batch, sizes = source.batch, {env.rollouts.group for env in source.envs}
    if batch.kind == "turns":
        return f"{batch.count:,} turns, from {batch.parallel or 1:,} episodes at a time"
    if len(sizes) == 1:
        size = sizes.pop()
        return f"{batch.count:,} groups of {size:,}: {batch.count * size:,} rollouts"
    part = shares(source.envs)
    rollouts = sum(batch.count * part[env.name] * env.rollouts.group for env in source.envs)
    return f"{batch.count:,} groups: about {ceil(rollouts):,} rollouts"


_COLLECTED: Table[Callable[[Any], str]] = Table(
    {
        PolicyGradient: _rollouts,
        Likelihood: _examples,
        PreferenceLoss: _compared,
        Evaluation: _tasks,
    }
)


def _policy_gradient(stage: Training, _: StageCost) -> Iterator[str]:
    source = stage.of(Rollouts)
    batch, overlap = source.batch, source.overlap
    yield collected(stage)
    if batch.resample:
        yield (
            f"at most {count(batch.resample, 'group')} of equals a step are replaced by other tasks"
        )
    if batch.updates > 1:
        yield f"split into {batch.updates:,} optimiser updates"
    if overlap.kind == "streamed":
        yield from _streamed(stage)
    elif overlap.kind == "asynchronous":
        late = count(overlap.max_staleness, "step")
        yield f"asynchronous: rollouts may come from weights up to {late} old"
    yield from _held_out(stage)
    yield from _environments(source.envs, stage.model)


def _preferences(stage: Training, _: StageCost) -> Iterator[str]:
    yield collected(stage)
    yield pairs_of(stage.data[0])
    yield from _held_out(stage)
    for data in stage.data:
        yield from _environments(data.environments, stage.model)


def _held_out(stage: Training) -> Iterator[str]:
    if stage.heldout is not None:
        every = f"after every {count(stage.every, 'step')} and " if stage.every else ""
        if stage.heldout.compares:
            yield f"held out: {pairs_of(stage.heldout)}, compared {every}at the end"
        else:
            yield f"held out: {_rows_of(stage.heldout)}, scored {every}at the end"


def pairs_of(data: AnyData) -> str:
    """What is compared: ``rows of pairs.jsonl``, ``256 pairs that policy makes in spell``."""
    if not isinstance(data, PreferredPairs):
        return _rows_of(data)
    who = data.model.after or data.model.model.name
    made = f"{data.count:,} pairs that {who} makes in {data.env.name}"
    return f"{made}, the best and the worst of {data.samples} replies to a task"


def _rows_of(data: AnyData) -> str:
    return f"rows of {data.read}" + (f", the first {data.count:,}" if data.count else "")


def _streamed(stage: Training) -> Iterator[str]:
    """What is done in parts, and what waits for all of them."""
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    given = objective.advantage, objective.loss, objective.aggregate, objective.kl, source.batch
    waits = dict.fromkeys(barrier.why for barrier in barriers(*given))
    ready = takes_what_is_ready(source.overlap, stage.model.service)
    parts = f"{source.overlap.minibatches:,} parts"
    if not waits:
        done = "of the groups that are in when the one before is done"
        each = f" at most, each {done}" if ready else ", each as soon as its groups are there"
        yield f"streamed: the gradient is taken in {parts}{each}"
        return
    others = {"reference": objective.kl is not None, "teacher": bool(objective.teacher)}
    if who := " and the ".join(name for name, there in others.items() if there):
        each, verb = " at most" if ready else "", "read" if all(others.values()) else "reads"
        yield f"streamed: the {who} {verb} the batch in {parts}{each}, while others are played"
    yield f"streamed: the gradient waits for the whole batch: {', '.join(waits)}"


def _imitation(stage: Training, _: StageCost) -> Iterator[str]:
    yield collected(stage)
    yield from _held_out(stage)
    data, model = stage.data[0], stage.model
    if isinstance(data, Samples):
        yield from sampled(data)
        model = data.model.model
    elif isinstance(data, Demonstrations):
        who = "the model itself" if data.from_policy else "its oracle"
        yield (
            f"{data.count:,} episodes of {data.env.name} with a reward of at least "
            f"{data.min_reward:g}, played by {who}"
        )
    else:
        yield _rows_of(data)
    yield from _environments(data.environments, model)


def _evaluation(stage: Evaluation, cost: StageCost) -> Iterator[str]:
    yield collected(stage)
    yield f"{count(cost.times, 'evaluation')} {when_evaluated(stage)}"
    yield from _environments(stage.envs, stage.model)


def when_evaluated(stage: Evaluation) -> str:
    """``before the first step of main, after every 5, at its end``."""
    if stage.after is None:
        return f"of {stage.model.name} as it is"
    first = "before its first step, " if stage.first else ""
    every = f"after every {count(stage.every, 'step')}, " if stage.every else ""
    return f"of {stage.after} ({first}{every}at its end)"


def _environments(envs: Iterable[EnvPlan], model: ModelPlan) -> Iterator[str]:
    envs = tuple(envs)
    part = shares(envs)
    for env in envs:
        yield f"{env.name}: {pipeline(env)}"
        if len(envs) > 1:
            share, size = part[env.name], env.rollouts.group
            yield f"{env.name}: {share:.0%} of the tasks, in groups of {size:,}"
        yield from (f"{env.name}: {sentence}" for sentence in _environment(env))
        yield f"{env.name}: {datum_sentence(env, model)}"


def _environment(env: EnvPlan) -> Iterator[str]:
    """How long its episodes are, and what is compared and played where that is unusual."""
    turns, reply = max_turns(env), env.rollouts.max_tokens
    if (game := with_role(env, "game")) is not None:
        solvers = int(game.args["solvers"])
        yield f"{count(solvers, 'solver')} and a judge: {solvers + 1} replies of {reply:,} tokens"
        yield (
            "each judge sees what its own solvers answered, so the judges of a task have "
            "different prompts and are compared all the same"
        )
    elif turns is None:
        if env.play is not None:
            yield _players(env, env.play)
        yield f"an unknown number of turns of at most {reply:,} tokens"
    else:
        most = f"at most {count(turns, 'turn')} of {reply:,} tokens"
        yield f"{most}: {turns * reply:,} sampled tokens a rollout"
    if (curriculum := with_role(env, "curriculum")) is not None:
        low, high, explore = (curriculum.args[n] for n in ("hopeless", "solved", "explore"))
        yield (
            f"tasks that at most {low:.0%} or at least {high:.0%} of the rollouts "
            f"solved when they were last played are passed over, but for {explore:.0%} of them"
        )


def _players(env: EnvPlan, play: PlayPlan) -> str:
    """Who has which seat in a match."""
    seats, by = seats_of(env), opponent_of(play)
    listed = ", ".join(seats)
    if play.is_self_play:
        return f"a match has the seats {listed}: the policy has all, {len(seats)} rollouts a match"
    if play.past is not None:
        by = f"the policy as it was after the last step that is a multiple of {play.past.every}"
    if play.seat == ANY:
        return f"a match has the seats {listed}: the policy has each in turn, and {by} the others"
    return f"a match has the seats {listed}: the policy is {play.seat}, and {by} the others"


def datum_sentence(env: EnvPlan, model: ModelPlan) -> str:
    """Return which training sequences an episode becomes, and what that does to the bill."""
    if with_role(env, "game") is not None:
        return "one training sequence a reply"
    if max_turns(env) == 1 or extends_prefix(env, model, unknown=False):
        return "one training sequence an episode"
    why = "every turn is billed with its whole prompt"
    if makes_text(env):
        return f"one training sequence a turn: {why}"
    if renderer_keeps_prefix(model.renderer) is None:
        return (
            f"one training sequence an episode, if the renderer {model.renderer} keeps earlier "
            "turns as they were, which is not known; else one a turn"
        )
    return (
        f"one training sequence a turn, for the renderer {model.renderer} rewrites earlier turns: "
        f"{why}"
    )


_SENTENCES: Table[Callable[[Any, StageCost], Iterator[str]]] = Table(
    {
        PolicyGradient: _policy_gradient,
        Likelihood: _imitation,
        PreferenceLoss: _preferences,
        Evaluation: _evaluation,
    }
)


FREE = "free: it runs on this machine, or on a server of your own"
_LABELS = {"cached": "cached prefill"}
_LABEL, _TOKENS, _USD = 15, 13, 12  # columns


def cost_lines(cost: StageCost) -> Lines:
    """The bill of one stage."""
    head = f"tokens {'an' if cost.kind == 'eval' else 'a'} {cost.unit}"
    whole = "" if cost.free else f"{f'USD of {count(cost.times, cost.unit)}':>{3 * _USD}}"
    yield f"{'':{_LABEL}}{head:>{3 * _TOKENS}}{whole}".rstrip()
    levels = _cells(LEVELS, _TOKENS)
    yield f"{'':{_LABEL}}{levels}" + ("" if cost.free else _cells(LEVELS))
    for kind in KINDS:
        yield from _kind_line(kind, cost)
    if any(cost.tokens_before[level].total for level in LEVELS):
        before = " / ".join(f"{cost.tokens_before[level].total:,.0f}" for level in LEVELS)
        yield f"before the first step: {before} tokens"
    if cost.free:
        yield FREE
        return
    blank = " " * 3 * _TOKENS
    yield f"{f'one {cost.unit}':{_LABEL}}{blank}{_money(cost.step[level] for level in LEVELS)}"
    yield f"{'total':{_LABEL}}{blank}{_money(cost.total(level) for level in LEVELS)}"
    yield from wrapped(f"prices of {prices_as_of()}")
    yield "a server of your own (--base-url) bills none of it"


def _kind_line(kind: str, cost: StageCost) -> Lines:
    """One kind, unless none of it is used."""
    tokens = [cost.step_parts(level).get(kind) for level in LEVELS]
    bill = [cost.bill[level].get(kind, Money()) for level in LEVELS]
    if not any(tokens) and not any(bill):
        return
    counts = _cells(("" if n is None else f"{round(n):,}" for n in tokens), _TOKENS)
    yield f"{_LABELS.get(kind, kind):{_LABEL}}{counts}{'' if cost.free else _money(bill)}".rstrip()


def job_cost_lines(costs: tuple[StageCost, ...]) -> Lines:
    """The bill of all stages together, by kind."""
    if all(cost.free for cost in costs):
        yield FREE
        return
    yield f"{'':{_LABEL}}{_cells(LEVELS)}"
    rows = bill_rows(costs)
    for kind, amounts in rows.items():
        yield f"{_LABELS.get(kind, kind):{_LABEL}}{_money(amounts)}"
    if not all(money.complete for money in rows["total"]):
        yield "≥: a lower bound, for a price in it is unknown"


def _money(amounts: Iterable[Money]) -> str:
    return _cells(dollars(money, sign="") for money in amounts)


def _cells(texts: Iterable[str], width: int = _USD) -> str:
    """Columns, with a blank before a number that is too wide for its own."""
    return "".join(f" {text:>{width - 1}}" for text in texts)


_BEFORE_STEADY = 2  # a pipeline is full after so many times its depth


def timing_lines(plan: Plan, stage: StagePlan, latencies: Latencies) -> Lines:
    """Seconds of a step, what it waits for, and how much slower all else could be."""
    timing = stage_timing(plan, stage, latencies)
    if timing is None:
        return
    yield f"{elapsed(timing['seconds_per_step'])} a step, {elapsed(timing['seconds'])} in all"
    if timing["critical_path"]:
        yield from wrapped(" → ".join(timing["critical_path"]), bullet="a step waits for  ")
    width = max(map(len, timing["nodes"]))
    for kind, node in timing["nodes"].items():
        slack = node["slack"]
        room = "on the critical path" if slack < 1e-9 else f"{elapsed(slack)} of slack"
        times = " / ".join(map(elapsed, dict.fromkeys(node["seconds"])))
        if any(node["seconds"]):
            yield f"{kind:{width}}  {times}, {room}"


def stage_timing(plan: Plan, stage: StagePlan, latencies: Latencies) -> dict[str, Any] | None:
    """Return the timing as data; None for an evaluation, or if nothing is known of the stage."""
    given = latencies.get(stage.name)
    if not is_training(stage) or not given:
        return None
    path = critical_path(plan.graph, stage.name, given)
    depth = _BEFORE_STEADY * (1 + max(edge.slack for edge in plan.graph.edges))
    head = min(depth, stage.steps)
    begun = completion_times(plan.graph, stage.name, [given] * head)[-1]
    return {
        "stage": stage.name,
        "seconds_per_step": path.seconds,
        "seconds": begun + (stage.steps - head) * path.seconds,
        "critical_path": list(path.critical),
        "nodes": {
            kind: {"seconds": given.get(kind, [0.0]), "slack": slack}
            for kind, slack in path.slack.items()
        },
    }
