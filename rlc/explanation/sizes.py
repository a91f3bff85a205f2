"""Sizes: what a stage collects and trains on, its cost, its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, isfinite
from typing import Any

from rlc.catalog import (
    AGENT,
    GRADER,
    REQUIRED,
    Param,
    busy_players,
    chat_history_of,
    find_builtin,
    goes_on,
    how_old,
    makes_text,
    max_turns,
    opens_elsewhere,
    preference_traits,
    price_source,
    provider,
    seats_of,
    stays,
    usual_players,
    with_other_histories,
    with_role,
)
from rlc.explanation.layout import UNKNOWN, Lines, count, dollars, number, wrapped
from rlc.explanation.schemes import called
from rlc.explanation.stages import sampled
from rlc.plan import (
    ANY,
    LOCAL,
    AnyData,
    BatchPlan,
    Demonstrations,
    EnvPlan,
    Evaluation,
    FromData,
    GraderPlan,
    Likelihood,
    ModelPlan,
    Plan,
    PlayersPlan,
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
from rlc.pricing import (
    KINDS,
    LEVELS,
    Level,
    Money,
    Seen,
    StageCost,
    bill_rows,
    extends_prefix,
    plan_cost,
    seen_latencies,
    shares,
    total_cost,
)
from rlc.pricing.critical_path import Latencies, completion_times, critical_path


def size_lines(stage: StagePlan, cost: StageCost) -> Lines:
    """Yield what one step collects, what becomes of an episode, and the most tokens of a step."""
    for sentence in (collected(stage), *_SENTENCES[stage](stage, cost)):
        yield from wrapped(sentence, hang=2)
    tokens, each = cost.step_tokens["high"].total, "an" if cost.kind == "eval" else "a"
    if cost.measured:
        least = number(cost.step_tokens["low"].total)
        yield f"{least} to {number(tokens)} tokens {each} {cost.unit}"
        return
    most = f"at most {number(tokens)}" if isfinite(tokens) else "any number of"
    yield f"{most} tokens {each} {cost.unit}"


def _pipeline(env: EnvPlan) -> str:
    """Return an environment as a recipe writes it, without the arguments that are defaults."""
    graders = {GRADER: env.graders} if env.graders else {}
    first = _call("env", env.source, env.args | ({} if env.agent else graders), env.id)
    if env.agent is not None:
        parts = children_of(env.agent) or {}
        given = {name: part for name, part in parts.items() if part is not None}
        agent = _call("env", AGENT, given | graders)
        first = f"{agent.removesuffix(')')}, tasks = {first})"
    calls = [first, *(_call("wrapper", wrapper.name, wrapper.args) for wrapper in env.wrappers)]
    if env.play is not None:
        seat = "" if env.play.seat in (None, ANY) else f', seat = "{env.play.seat}"'
        calls.append(f"play(against = {_opponent(env.play)}{seat})")
    return " |> ".join(calls)


def _opponent(play: PlayPlan) -> str:
    """Return the opponent of the seats that are trained, as a recipe names it."""
    if play.past is not None:
        return f"past(every = {play.past.every})"
    if (script := play.script) is not None:
        given = {"args": script.args} if script.args else {}
        return _call("opponent", script.player, given, script.function)
    if play.opponent is None:
        return "self"
    return play.opponent.after or play.opponent.model.name


def _call(kind: str, name: str, args: Mapping[str, Any], first: str | None = None) -> str:
    """Return the call of a builtin as a recipe writes it, without arguments that are defaults."""
    builtin = find_builtin(kind, name)
    params = builtin.params if builtin else ()
    if builtin is not None and builtin.more is not None and first is not None:
        params += builtin.more(first).params
    by_name = {param.name: param for param in params}

    def written(param: Param | None, value: Any) -> str:
        if param is not None and param.type == "split" and isinstance(value, Mapping):
            own = {key: v for key, v in value.items() if key != "part"}
            return _call("split", value["part"], own)
        if param is not None and param.type == "grader":
            return _graders(value)
        if param is not None and (param.type == "word" or param.is_word(value)):
            return show(value, "word")
        return show(value, "string" if isinstance(value, str) else "any")

    given = [] if first is None else [written(params[0] if params else None, first)]
    for key, value in args.items():
        param = by_name.get(key)
        if param is None or param.default != value:
            required = param is not None and param.default is REQUIRED
            shown = written(param, value)
            given.append(shown if required else f"{key} = {shown}")
    return f"{name}({', '.join(given)})"


def _graders(graders: Sequence[GraderPlan]) -> str:
    """Return graders as a recipe writes them: one alone, or a record."""
    parts = {}
    for part in graders:
        builtin = find_builtin("grader", part.grader)
        is_word = builtin is None or builtin.word
        call = part.grader if is_word else _call("grader", part.grader, part.args)
        parts[part.name] = call if part.weight == 1 else f"{show(part.weight, 'float')} * {call}"
    if len(parts) == 1:
        return "".join(parts.values())
    return f"{{ {'  '.join(f'{name} = {part}' for name, part in parts.items())} }}"


def collected(stage: StagePlan) -> str:
    """Return what one step takes, or one evaluation: ``16 groups of 8: 128 rollouts``."""
    return _COLLECTED[stage](stage)


def _examples(stage: Training) -> str:
    return f"{count(stage.of(FromData).batch, 'example')} a step"


def _pairs(stage: Training) -> str:
    labelled = preference_traits(stage.of(PreferenceLoss).loss).labelled
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
        return f"{batch.count:,} turns, from {batch.at_once:,} episodes at a time"
    if len(sizes) == 1:
        size = sizes.pop()
        return f"{batch.count:,} groups of {size:,}: {batch.count * size:,} rollouts"
    part = shares(source.envs)
    rollouts = sum(batch.count * part[env.name] * env.rollouts.group for env in source.envs)
    return f"{batch.count:,} groups: about {ceil(rollouts):,} rollouts"


_COLLECTED: Table[Callable[[Any], str]] = Table(
    {PolicyGradient: _rollouts, Likelihood: _examples, PreferenceLoss: _pairs, Evaluation: _tasks}
)


def _policy_gradient(stage: Training, _: StageCost) -> Iterator[str]:
    source = stage.of(Rollouts)
    batch, overlap = source.batch, source.overlap
    if batch.resample:
        yield (
            f"at most {count(batch.resample, 'group')} of equals a step are replaced by other tasks"
        )
    if batch.updates > 1:
        yield f"split into {batch.updates:,} optimiser updates"
    if overlap.minibatches > 1:
        yield from _streamed(stage)
    if overlap.kind == "asynchronous":
        yield _asynchronous(batch, overlap.max_staleness)
    yield from _played_by(stage, source.players)
    yield from _held_out(stage)
    yield from _environments(source.envs, stage.model)


_ANY_MACHINE = 1_024  # cores


def _played_by(stage: StagePlan, players: PlayersPlan | None) -> Iterator[str]:
    """Yield who plays the episodes, unless it is the process of the run, as for most."""
    given = players or usual_players(stage, _ANY_MACHINE)
    if given.kind == "here":
        if players is not None:
            yield "played in the process of the run"
        return
    who = "actors of Ray" if given.kind == "ray" else "processes"
    most = busy_players(stage, given.count or _ANY_MACHINE)
    many = f"{most:,} {who}" if most > 1 else f"one of {who}"
    if players is None:
        many = f"a process for each core of the machine, {most:,} at most"
    elif players.count is None:
        room = "as many as there is room for" if given.kind == "ray" else "one for each core"
        many = f"{who}, {room}, {most:,} at most"
    elsewhere = opens_elsewhere(stage.model.service)
    how = "" if elsewhere else ", which sample through the process of the run"
    yield f"played by {many}{how}; no result depends on it"
    for env in stage.played:
        if (why := stays(env)) is not None:
            yield f"{env.name} is played in the process of the run: {why}"


def _asynchronous(batch: BatchPlan, most: int) -> str:
    if not most:
        return "asynchronous with a staleness of 0: steps follow each other, as in synchronous()"
    what = "episode" if batch.kind == "turns" else "group"
    groups = count((1 + most) * batch.at_once, what)
    return (
        f"asynchronous: rollouts may come from weights up to {count(most, 'step')} old; at most "
        f"{groups} are in play at once"
    )


def _preferences(stage: Training, _: StageCost) -> Iterator[str]:
    yield data_text(stage.data[0])
    yield from _held_out(stage)
    for data in stage.data:
        yield from _environments(data.environments, stage.model)


def _held_out(stage: Training) -> Iterator[str]:
    if stage.heldout is not None:
        every = f"after every {count(stage.every, 'step')} and " if stage.every else ""
        scored = ", compared " if stage.heldout.compares else ", scored "
        yield f"held out: {data_text(stage.heldout)}{scored}{every}at the end"


def data_text(data: AnyData) -> str:
    """Return ``rows of pairs.jsonl``, or ``256 pairs that policy makes in spell, …``."""
    if not isinstance(data, PreferredPairs):
        return f"rows of {data.read}" + (f", the first {data.count:,}" if data.count else "")
    who = data.model.after or data.model.model.name
    made = f"{data.count:,} pairs that {who} makes in {data.env.name}"
    return f"{made}, the best and the worst of {data.samples} replies to a task"


def _streamed(stage: Training) -> Iterator[str]:
    """Yield what is computed part by part, and what waits for the whole batch."""
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
        yield data_text(data)
    yield from _environments(data.environments, model)


def _evaluation(stage: Evaluation, cost: StageCost) -> Iterator[str]:
    yield f"{count(cost.times, 'evaluation')} {when_evaluated(stage)}"
    yield from _played_by(stage, stage.players)
    yield from _environments(stage.envs, stage.model)


def when_evaluated(stage: Evaluation) -> str:
    """Return ``of main (before its first step, after every 5 steps, at its end)``."""
    if stage.after is None:
        return f"of {stage.model.name} as it is"
    first = "before its first step, " if stage.first else ""
    every = f"after every {count(stage.every, 'step')}, " if stage.every else ""
    return f"of {stage.after} ({first}{every}at its end)"


def _environments(envs: Sequence[EnvPlan], model: ModelPlan) -> Iterator[str]:
    part = shares(envs)
    for env in envs:
        yield f"{env.name}: {_pipeline(env)}"
        if len(envs) > 1:
            share, size = part[env.name], env.rollouts.group
            yield f"{env.name}: {share:.0%} of the tasks, in groups of {size:,}"
        yield from (f"{env.name}: {sentence}" for sentence in _environment(env))
        yield f"{env.name}: {datum_sentence(env, model)}"


def _environment(env: EnvPlan) -> Iterator[str]:
    """Yield how long its episodes are, and what is unusual about how they are played."""
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
    curriculum = with_role(env, "curriculum")
    if curriculum is not None and "by" in curriculum.args:
        by = called(curriculum.args["by"], curriculum.args["args"])
        yield f"tasks are drawn by the weights that {by} gives them, a function of your own"
    elif curriculum is not None:
        low, high, explore = (curriculum.args[n] for n in ("hopeless", "solved", "explore"))
        yield (
            f"tasks that at most {low:.0%} or at least {high:.0%} of the rollouts "
            f"solved when they were last played are passed over, but for {explore:.0%} of them"
        )


def _players(env: EnvPlan, play: PlayPlan) -> str:
    """Return who has which seat in a match."""
    seats, by = seats_of(env), _opponent(play)
    match = f"a match has the seats {', '.join(seats)}: the policy"
    if play.is_self_play:
        return f"{match} has all, {len(seats)} rollouts a match"
    if play.past is not None:
        by = f"the policy as it was after the last step that is a multiple of {play.past.every}"
    own = "has each in turn" if play.seat == ANY else f"is {play.seat}"
    return f"{match} {own}, and {by} the others"


def datum_sentence(env: EnvPlan, model: ModelPlan) -> str:
    """Return which training sequences an episode becomes, and what that does to the bill."""
    if with_role(env, "game") is not None:
        return "one training sequence a reply"
    if max_turns(env) == 1 or extends_prefix(env, model, unknown=False):
        return "one training sequence an episode"
    why = "every turn is billed with its whole prompt"
    if makes_text(env):
        return f"one training sequence a turn: {why}"
    if goes_on(env, model.renderer) is None:
        anew = chat_history_of(env) == "template"
        who = f"the renderer {model.renderer}" if anew else "its code"
        return (
            f"one training sequence an episode, if {who} keeps earlier turns as they were, which "
            "is not known; else one a turn"
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


def price(costs: Sequence[StageCost]) -> str:
    """Return what stages cost with all that they ask: ``$2 expected, $1 to $7``; if nothing of it
    is known, whose price is missing."""
    if all(cost.free for cost in costs):
        return FREE
    unpriced = dict.fromkeys(name for cost in costs for name in cost.unpriced)
    if unpriced and not any(total_cost(costs, level).known for level in LEVELS):
        return f"{UNKNOWN}: no price of {' or '.join(unpriced)} is known"
    return span(lambda level: dollars(total_cost(costs, level)))


def other_price(plan: Plan, costs: Sequence[StageCost]) -> Lines:
    """Yield the price of a plan whose chats show the other thing of earlier turns, if any."""
    if all(cost.free for cost in costs) or (found := with_other_histories(plan)) is None:
        return
    history, other = found
    expected = dollars(total_cost(plan_cost(other), "expected"))
    yield f"{expected} expected with `history = {history}`"


def span(of: Callable[[Level], str]) -> str:
    """Return what is expected of a number, and from where to where it can be."""
    low, expected, high = map(of, LEVELS)
    return f"{expected} expected, {low} to {high}"


def stale_prices(models: Iterable[ModelPlan]) -> Lines:
    """Yield a line for each day whose prices are too old to be relied on."""
    dated = ((price_source(model)[1], model) for model in models if model.service != LOCAL)
    aged = {day: age for day, model in dated if (age := _age(model, day))}
    for day, age in aged.items():
        yield f"prices of {day}{age}"


def _age(model: ModelPlan, day: str | None) -> str:
    """Return that prices of a day are old, and what to do; nothing if they are not."""
    listed = model.price is None or "://" in model.price.source
    old = how_old(day)
    return f"{old}: `rlc models --refresh`" if old and listed else old


_LABEL, _TOKENS, _USD = 15, 13, 12  # columns


def cost_lines(cost: StageCost, model: ModelPlan) -> Lines:
    """Yield the bill of one stage."""
    head = f"tokens {'an' if cost.kind == 'eval' else 'a'} {cost.unit}"
    whole = "" if cost.free else f"{f'USD of {count(cost.times, cost.unit)}':>{3 * _USD}}"
    yield f"{'':{_LABEL}}{head:>{3 * _TOKENS}}{whole}".rstrip()
    levels = _cells(LEVELS, _TOKENS)
    yield f"{'':{_LABEL}}{levels}" + ("" if cost.free else _cells(LEVELS))
    for kind in KINDS:
        tokens = [cost.step_parts(level).get(kind) for level in LEVELS]
        bill = [cost.bill[level].get(kind, Money()) for level in LEVELS]
        if any(tokens) or any(bill):
            counts = _cells(("" if n is None else number(n) for n in tokens), _TOKENS)
            paid = "" if cost.free else _money(bill)
            yield f"{_LABELS.get(kind, kind):{_LABEL}}{counts}{paid}".rstrip()
    if any(cost.tokens_before[level].total for level in LEVELS):
        before = " / ".join(number(cost.tokens_before[level].total) for level in LEVELS)
        yield f"before the first step: {before} tokens"
    if cost.free:
        yield FREE
        return
    blank = " " * 3 * _TOKENS
    yield f"{f'one {cost.unit}':{_LABEL}}{blank}{_money(cost.step[level] for level in LEVELS)}"
    yield f"{'total':{_LABEL}}{blank}{_money(cost.total(level) for level in LEVELS)}"
    if not any(cost.total(level).known for level in LEVELS):
        yield price([cost])
    source, day = price_source(model)
    if source:
        yield from wrapped(f"prices of {source}{_age(model, day)}")
    elif note := provider(model.service).prices.get("note"):
        yield from wrapped(f"prices: {note}")
    yield "a server of your own (--base-url) bills none of it"


def job_cost_lines(costs: tuple[StageCost, ...]) -> Lines:
    """Yield the bill of all stages together, by kind."""
    if all(cost.free for cost in costs):
        yield FREE
        return
    yield f"{'':{_LABEL}}{_cells(LEVELS)}"
    rows = bill_rows(costs)
    for kind, amounts in rows.items():
        yield f"{_LABELS.get(kind, kind):{_LABEL}}{_money(amounts)}"
    if not any(money.known for money in rows["total"]):
        yield price(costs)
    elif not all(money.complete for money in rows["total"]):
        yield "≥: a lower bound, for a price in it is unknown"


def _money(amounts: Iterable[Money]) -> str:
    return _cells(dollars(money, sign="") for money in amounts)


def _cells(texts: Iterable[str], width: int = _USD) -> str:
    """Return cells of a row, with a blank before a text that is too wide for its column."""
    return "".join(f" {text:>{width - 1}}" for text in texts)


def times_of(
    plan: Plan,
    latencies: Latencies | None,
    seen: Mapping[str, Seen],
    costs: Iterable[StageCost],
) -> Latencies:
    """Return the latencies that are given, else those that were seen."""
    if latencies is not None or not seen:
        return latencies or {}
    trained = {cost.stage: cost.step_tokens["expected"].train for cost in costs}
    return seen_latencies(plan, seen, trained)


def timing_lines(plan: Plan, stage: StagePlan, latencies: Latencies) -> Lines:
    """Yield the seconds of a step, its critical path and the slack of each node."""
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
    depth = 1 + max(edge.slack for edge in plan.graph.edges)
    head = min(2 * depth, stage.steps)  # a pipeline is full after twice its depth
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
