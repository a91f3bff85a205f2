"""The sweeps of a recipe: their axes, and what all trials cost together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlc.algo import LIKELY, effect_seen, looks
from rlc.compile import MOST_LISTED, SAMPLED, Sweep
from rlc.explanation.layout import UNKNOWN, Lines, count, dollars, section, wrapped
from rlc.explanation.sizes import FREE
from rlc.lang.render import Paint
from rlc.plan import (
    AxisPlan,
    Change,
    ComparedValue,
    SearchPlan,
    SweepPlan,
    WrittenValue,
    amount,
    changes_between,
    show,
)
from rlc.plan.leaves import leaves
from rlc.pricing import LEVELS, SweepCost
from rlc.records import asdict


def sweep_lines(sweep: Sweep, paint: Paint) -> Lines:
    """Yield everything about a sweep."""
    plan, cost = sweep.plan, sweep.cost
    runs = count(cost.trials, "trial")
    yield paint.title(f"sweep {plan.name}: {runs} of {plan.of}, compared by {plan.metric.name}")
    width = max(len(axis.path) for axis in plan.axes)
    axes = (
        line
        for axis in plan.axes
        for line in wrapped(f"{axis.path:{width}}   {_axis_text(axis)}", hang=width + 3)
    )
    yield from section("axes", axes, paint)
    yield from section("search", _search_lines(sweep), paint)
    yield from section("claims", _claim_lines(plan), paint)
    yield from section("cost of all trials", _cost_lines(plan, cost), paint)


def _axis_text(axis: AxisPlan) -> str:
    """Return the values of an axis."""
    if (span := axis.range) is None:
        return ", ".join(axis.values)
    how = "by their logarithms" if span.scale == "log" else "evenly"
    step = "" if span.step is None else f", every {span.step:g}"
    return f"from {span.low:g} to {span.high:g}{step}, sampled {how}"


def _search_lines(sweep: Sweep) -> Lines:
    plan, search = sweep.plan, sweep.plan.search
    goal = "the most" if plan.metric.more_is_better else "the least"
    held_out = "held out" if plan.metric.held_out else "of tasks that are trained on"
    yield f"{_search_text(search)}: {count(sweep.size, 'configuration')}"
    if sweep.combinations > MOST_LISTED:
        yield from wrapped(
            f"checked and priced by {SAMPLED:,} of the {sweep.combinations:,} configurations of "
            "its values: another one may not work, and its trials would fail"
        )
    first, *_, last = (*sweep.seeds, sweep.seeds[-1])
    yield f"each with seed {first}" if first == last else f"each with seeds {first} to {last}"
    mean = ", the mean over the seeds" if len(sweep.seeds) > 1 else ""
    yield f"best is {goal} {plan.metric.name} ({held_out}){mean}"
    if search.eta is not None:
        rungs = ", ".join(f"{(search.first or 1) * search.eta**rung:,}" for rung in range(3))
        yield from wrapped(
            f"after {rungs} … steps about one of every {search.eta} configurations goes on; the "
            "others end there"
        )


def _claim_lines(plan: SweepPlan) -> Lines:
    """Yield what is claimed, what a verdict needs, and what that takes of the sweep."""
    for claim in plan.claims:
        yield from wrapped(f"{claim.name}: {claim.text}", hang=2)
        at = looks(plan.seeds, claim.early)
        error = (1 - claim.level) / claim.among * at[plan.seeds]
        side = "above" if claim.above else "below"
        yield from wrapped(
            f"  decided with probability {100 * LIKELY:g} % if the mean over {plan.seeds} seeds is "
            f"really {effect_seen(plan.seeds, error, LIKELY):.2f} standard deviations of the "
            f"seeds' differences {side} {amount(claim.limit, claim.unit)}, or on the other side",
            hang=2,
        )
        several = f", corrected for {claim.among} claims" if claim.among > 1 else ""
        yield f"  at {100 * claim.level:g} %, each side{several}"
        runs = f"{count(len(claim.terms) * plan.seeds, 'trial')} of the sweep"
        if len(at) > 1:
            *early, _ = at
            after = ", ".join(map(str, early))
            yield from wrapped(
                f"  compares {runs}; also looked at after {after} seeds, and what is decided then "
                "is run no further",
                hang=2,
            )
        else:
            yield f"  compares {runs}, looked at once"


def _search_text(search: SearchPlan) -> str:
    """Return ``tpe(20)``, ``halving(eta = 3, first = 10)``."""
    if search.eta is None:
        return f"{search.kind}({'' if search.n is None else search.n})"
    given = {"n": search.n, "eta": search.eta, "first": search.first}
    args = (f"{name} = {value:,}" for name, value in given.items() if value is not None)
    return f"{search.kind}({', '.join(args)})"


def sweep_changes(before: Sequence[Sweep], after: Sequence[Sweep]) -> Iterator[Change]:
    """Return what differs between the sweeps of two recipes."""
    return changes_between(
        *({k: v for s in side for k, v in _values(s)} for side in (before, after))
    )


def _values(sweep: Sweep) -> Iterator[tuple[str, ComparedValue]]:
    plan, name = sweep.plan, sweep.plan.name
    yield name, ComparedValue("sweep")
    yield f"{name}.of", ComparedValue(WrittenValue(plan.of))
    for axis in plan.axes:
        yield f"{name}.over.{axis.path}", ComparedValue(WrittenValue(_axis_text(axis)))
    yield f"{name}.search", ComparedValue(WrittenValue(_search_text(plan.search)))
    yield f"{name}.seeds", ComparedValue(plan.seeds)
    yield f"{name}.metric", ComparedValue(WrittenValue(plan.metric.name))
    for claim in plan.claims:
        for field in ("text", "level", "early"):
            path = f"{name}.{claim.name}" + (f".{field}" if field != "text" else "")
            value = getattr(claim, field)
            yield path, ComparedValue(WrittenValue(value) if field == "text" else value)
    for path, value in leaves(plan.budget, f"{name}.budget"):
        yield path, ComparedValue(value)
    if not sweep.cost.free:
        yield f"{name}.cost", ComparedValue(WrittenValue(_totals(sweep.cost)))


def _cost_lines(plan: SweepPlan, cost: SweepCost) -> Lines:
    if cost.free:
        yield FREE
    elif not any(money.known for money in cost.total.values()):
        yield f"{UNKNOWN}: no price of what is paid is known"
    else:
        yield f"{_totals(cost)} (low / expected / high)"
        least, most = dollars(cost.least), dollars(cost.most)
        yield f"a trial alone: {least if least == most else f'{least} to {most}'}, expected"
        if cost.shared:
            yield (
                f"{dollars(cost.shared)} less than apart: stages before {plan.of} are run once for "
                "all trials that share them"
            )
    budget, limits = plan.budget, list[str]()
    limits += [] if budget.usd is None else [show(budget.usd, "money")]
    limits += [] if budget.seconds is None else [show(budget.seconds, "duration")]
    limits += [] if budget.tokens is None else [f"{budget.tokens:,} tokens"]
    yield f"budget: {', '.join(limits) or 'none'}"


def _totals(cost: SweepCost) -> str:
    return " / ".join(dollars(cost.total[level]) for level in LEVELS)


def sweep_dicts(sweeps: Sequence[Sweep]) -> list[dict[str, Any]]:
    """Return sweeps as data. A null total is unknown, and ``at_least`` its lower bound; if that is
    null, too, it has no bound."""
    return [
        {
            **asdict(sweep.plan),
            "configurations": sweep.size,
            "trials": sweep.cost.trials,
            "cost": {
                "total": {level: sweep.cost.total[level].total for level in LEVELS},
                "at_least": {level: sweep.cost.total[level].at_least for level in LEVELS},
                "shared": sweep.cost.shared.usd,
                "free": sweep.cost.free,
            },
        }
        for sweep in sweeps
    ]
