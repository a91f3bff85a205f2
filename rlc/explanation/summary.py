"""A plan in about ten lines: what trains on what, how long, how much of which budget, what is
unusual. Everything else is in the full text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite, isinf
from typing import TYPE_CHECKING

from rlc.catalog import NO_ADVANTAGE
from rlc.compile import left_out
from rlc.explanation.job import expectation_lines
from rlc.explanation.layout import NO_BOUND, UNKNOWN, WIDTH, Lines, count, dollars, wrap
from rlc.explanation.sizes import (
    collected,
    data_text,
    other_price,
    price,
    span,
    stage_timing,
    stale_prices,
    times_of,
    when_evaluated,
)
from rlc.explanation.stages import reference_name, teaching, whose
from rlc.lang import Diagnostics, in_order, printable
from rlc.lang.render import Paint
from rlc.plan import (
    RECOGNISED,
    EnvPlan,
    Likelihood,
    ModelPlan,
    Plan,
    PolicyGradient,
    PreferenceLoss,
    Rollouts,
    Samples,
    StagePlan,
    Table,
    Training,
    elapsed,
    evaluations_of,
    in_dollars,
    is_evaluation,
    is_training,
    plan_hash,
    show,
)
from rlc.plan.leaves import asked_models
from rlc.pricing import LEVELS, Level, Seen, StageCost, endless, plan_cost, shares, total_cost
from rlc.pricing.critical_path import Latencies

if TYPE_CHECKING:
    from rlc.compile import Sweep

_MOST_FINDINGS = 5  # listed; the others are counted


def summary_text(
    plan: Plan,
    found: Diagnostics,
    color: bool = False,
    latencies: Latencies | None = None,
    sweeps: Sequence[Sweep] = (),
    reused: Sequence[str] = (),
    seen: Mapping[str, Seen] = {},
) -> str:
    """Return a plan in short, with the arguments of :func:`rlc.explanation.full.explain_text`."""
    paint = Paint(color)
    costs = plan_cost(plan, seen)
    made: list[tuple[str, Iterable[str]]] = [
        *((s.name, _stage(s, cost)) for s, cost in zip(plan.stages, costs, strict=True)),
        *((f"sweep {sweep.plan.name}", _sweep(sweep)) for sweep in sweeps),
        ("tokens", [span(lambda level: _rounded(sum(cost.tokens(level) for cost in costs)))]),
        ("measured", _measured(plan, costs, seen)),
        ("time", _time(plan, latencies, seen, costs)),
        (
            "cost",
            [
                price(costs),
                *other_price(plan, costs),
                *stale_prices(stage.model for stage in plan.stages),
            ],
        ),
        ("reused", reused),
        ("budget", _budget(plan, costs)),
        ("expected", expectation_lines(plan, Paint())),
        ("unusual", _unusual(plan, costs, found)),
    ]
    seed = f"seed {plan.seed} ({plan.provenance.get('seed', 'default')})"
    services = " and ".join(dict.fromkeys(stage.model.service for stage in plan.stages))
    title = paint.title(f"{plan.recipe} on {services}")
    text = [f"{title}   plan {plan_hash(plan)[:12]}   {seed}", ""]
    parts = [(name, sentences) for name, lines in made if (sentences := list(lines))]
    width = max(len(name) for name, _ in parts)
    for name, sentences in parts:
        label = paint.title(f"{name:{width}}")
        for sentence in sentences:
            for line in wrap(printable(sentence), WIDTH - width - 4, later="  "):
                text.append(f"  {label}  {line}")
                label = " " * width
    text += ["", paint.dim("--full shows every value with its origin, formulas, graph and bill")]
    return "\n".join(line.rstrip() for line in text) + "\n"


def _stage(stage: StagePlan, cost: StageCost) -> Lines:
    """Yield what is done with which model, and how often."""
    times = count(cost.times, cost.unit)
    each = collected(stage).removesuffix(" an evaluation").removesuffix(" a step")
    if is_evaluation(stage):
        metrics = ", ".join(f"{m.name}({m.k})" if m.k else m.name for m in stage.metrics)
        model = stage.after or _model(stage.model, None)
        yield f"evaluates {model} on {_environments(stage.envs)}: {metrics}"
        yield f"{times} {when_evaluated(stage)}, each {each}"
    elif is_training(stage):
        model, rate = _model(stage.model, stage.after), stage.optimizer.learning_rate
        yield f"trains {model} on {_HOW[stage](stage, f'learning rate {rate:g}')}"
        yield f"{times}, each {each}"


def _preferences(stage: Training, rate: str) -> str:
    return f"{data_text(stage.data[0])} by {stage.of(PreferenceLoss).loss.name}, {rate}"


def _imitation(stage: Training, rate: str) -> str:
    data = stage.data[0]
    episodes = "".join(f"{data.count or 0:,} episodes of {env.name}" for env in data.environments)
    if isinstance(data, Samples):
        episodes += f" that {whose(data.model)} plays"
    return f"{episodes or data.read}, supervised, {rate}"


def _policy_gradient(stage: Training, rate: str) -> str:
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    scheme = objective.advantage.function or objective.advantage.name
    with_it = "" if objective.advantage == NO_ADVANTAGE else f"{scheme} with "
    how = [f"{with_it}{objective.loss.name}", rate]
    if objective.kl is not None and objective.kl.coef:
        reference = reference_name(objective.kl.reference).strip('"')
        how.append(f"{objective.kl.coef:g} × KL to {reference}")
    how += [teaching(teacher) for teacher in objective.teacher]
    if source.overlap.overlaps:
        how.append(source.overlap.kind)
    return f"{_environments(source.envs)} by {', '.join(how)}"


_HOW: Table[Callable[[Training, str], str]] = Table(
    {
        PolicyGradient: _policy_gradient,
        Likelihood: _imitation,
        PreferenceLoss: _preferences,
    }
)


def _model(model: ModelPlan, after: str | None) -> str:
    """Return a model, and what its weights are from: ``tiny (LoRA of rank 8), from warmup``."""
    base = f"{model.base} (LoRA of rank {model.lora_rank})"
    start = after or model.weights
    goes_on = " with its optimiser" if after is None and model.with_optimizer else ""
    return base if start is None else f"{base}, from {start}{goes_on},"


def _environments(envs: Sequence[EnvPlan]) -> str:
    """Return ``guess (gem game:Sudoku-v0)``, ``75% guess (…), 25% duel (…, with big)``."""
    part = shares(envs)
    listed = []
    for env in envs:
        share = f"{part[env.name]:.0%} " if len(envs) > 1 else ""
        asked = dict.fromkeys(state.after or state.model.name for _, state in asked_models(env))
        others = f", with {' and '.join(asked)}" if asked else ""
        listed.append(f"{share}{env.name} ({env.played}{others})")
    return ", ".join(listed)


def _sweep(sweep: Sweep) -> Lines:
    plan, cost = sweep.plan, sweep.cost
    paid = "" if cost.free else f"; {span(lambda level: dollars(cost.total[level]))}"
    if not any(money.known for money in cost.total.values()):
        paid = f"; cost {UNKNOWN}"
    trials = f"{count(cost.trials, 'trial')} of {plan.of}"
    claims = f", for {count(len(plan.claims), 'claim')}" if plan.claims else ""
    yield f"{trials}, compared by {plan.metric.name}{claims}{paid} (`rlc sweep` runs it)"


def _measured(plan: Plan, costs: Sequence[StageCost], seen: Mapping[str, Seen]) -> Lines:
    """Yield what the estimates are made of, where episodes were seen."""
    for stage, cost in zip(plan.stages, costs, strict=True):
        for env in stage.played if cost.measured else ():
            one = seen[stage.name][env.name]
            drift = one.length_drift
            yield (
                f"{stage.name}: {count(one.episodes, 'episode')} of {env.name} in the "
                f"{one.source}; the range holds in nine of ten runs, if lengths change by "
                f"{drift.low:.2f} to {drift.high:.2f} ({drift.source})"
            )


def _time(
    plan: Plan,
    latencies: Latencies | None,
    seen: Mapping[str, Seen],
    costs: Sequence[StageCost],
) -> Lines:
    """Yield how long stages take, with latencies that are given, or as seen."""
    given = times_of(plan, latencies, seen, costs)
    for stage in plan.stages:
        if timing := stage_timing(plan, stage, given):
            step = elapsed(timing["seconds_per_step"])
            about = "" if latencies is not None else "about "
            yield f"{stage.name}: {about}{step} a step, {elapsed(timing['seconds'])} in all"


def _budget(plan: Plan, costs: Sequence[StageCost]) -> Lines:
    """Yield the limits of each stage with its evaluations, compared with the estimates."""
    limited = False
    by_stage = {cost.stage: cost for cost in costs}
    for stage in plan.trainings:
        budget = stage.budget
        names = [stage.name, *(one.name for one in evaluations_of(stage, plan.stages))]
        counted = [by_stage[name] for name in names]
        if budget.usd is not None:
            sums = {level: total_cost(counted, level).usd for level in LEVELS}
            unknown = any(cost.unpriced for cost in counted)
            yield _limit(stage.name, budget.usd, sums, in_dollars, unknown)
        if budget.tokens is not None:
            sums = {level: sum(cost.tokens(level) for cost in counted) for level in LEVELS}
            yield _limit(stage.name, budget.tokens, sums, "{:,.0f} tokens".format)
        if budget.seconds is not None:
            yield f"{show(budget.seconds, 'duration')} for {stage.name}"
        limited = limited or budget != type(budget)(None, None, None)
    if not limited and not all(cost.free for cost in costs):
        yield "none: nothing but the steps limits what is spent"


def _limit(
    stage: str,
    most: float,
    sums: dict[Level, float],
    written: Callable[[float], str],
    unknown: bool = False,
) -> str:
    """Compare a limit with the estimates of what counts against it, which may be ``unknown``."""
    limit = f"{written(most)} for {stage}"
    if unknown:
        return f"{limit}: it cannot be kept, for a price is unknown, and the run is refused"
    for level in LEVELS:
        if sums[level] > most:
            shown = f", {written(sums[level])}, is more"
            shown = shown if isfinite(sums[level]) else f" has {NO_BOUND}"
            return f"{limit}: the {level} estimate{shown}: the run stops there"
    return f"{limit}: enough even for the high estimate"


def _unusual(plan: Plan, costs: Sequence[StageCost], found: Diagnostics) -> Iterator[str]:
    """Yield what a reader would not assume, and the findings of the recipe."""
    if plan.rehearses:
        yield "a rehearsal: a small and short version on the tiny model"
        yield from filter(None, [left_out(plan)])
    for name in endless(plan.stages):
        yield f"nothing limits the turns of {name}: `rollouts(max_turns = …)` gives high a bound"
    for stage in plan.trainings:
        origin = plan.provenance.get(f"stages.{stage.name}.loss.name", "")
        objective = stage.policy_gradient or stage.preference
        if origin.endswith(RECOGNISED) and objective is not None:
            own = origin.removesuffix(RECOGNISED)
            yield f"the loss of {stage.name} is {objective.loss.name}: {own} has its formula"
    totals = [total_cost(costs, level) for level in LEVELS]
    if any(total.known and not total.complete for total in totals):
        yield "a price is unknown: amounts with ≥ are lower bounds"
    for item in in_order(found)[:_MOST_FINDINGS]:
        place = f"{item.file_name}:{item.span.line}" if item.span else item.file_name
        yield f"{item.severity.value} {item.code}: {item.message} ({place})"
    if (more := len(found) - _MOST_FINDINGS) > 0:
        yield f"and {count(more, 'more finding')}, which `rlc check` lists"


def _rounded(number: float) -> str:
    """Return ``119 million``: three digits are more than an estimate has."""
    if isinf(number):
        return NO_BOUND
    for size, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"), (1e3, "k")):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{name}"
    return f"{number:.0f}"
