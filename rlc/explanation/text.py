"""Everything about a plan, for a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlc.catalog import STAGES, located_files
from rlc.explanation.formulas.stages import formula_sections
from rlc.explanation.job.expectations import expectation_lines
from rlc.explanation.job.graph import job_lines, step_lines
from rlc.explanation.job.requirements import needed, written
from rlc.explanation.layout import Lines, count, section, wrapped
from rlc.explanation.sizes import cost_lines, job_cost_lines, size_lines, timing_lines
from rlc.explanation.values import value_lines
from rlc.lang import Diagnostics
from rlc.lang.render import Paint, render_human
from rlc.plan import Plan, StagePlan, plan_hash
from rlc.pricing import StageCost, stage_costs
from rlc.pricing.assumptions import assumptions
from rlc.pricing.critical_path import Latencies

if TYPE_CHECKING:
    from rlc.compile import Sweep


def explain_text(
    plan: Plan,
    found: Diagnostics,
    color: bool = False,
    latencies: Latencies | None = None,
    sweeps: Sequence[Sweep] = (),
) -> str:
    """The whole plan; ``found`` are the findings of its recipe, ``sweeps`` what it tries. With
    ``latencies``, how long it takes, too."""
    lines = list(_plan(plan, latencies or {}, Paint(color)))
    if sweeps:
        from rlc.explanation.job.sweeps import sweep_lines  # most recipes have none

        for sweep in sweeps:
            lines += ["", *sweep_lines(sweep, Paint(color))]
    if found:
        lines += ["", render_human(found, color=color).rstrip()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _plan(plan: Plan, latencies: Latencies, paint: Paint) -> Lines:
    seed = f"seed {plan.seed} ({plan.provenance.get('seed', 'default')})"
    yield f"{paint.title(plan.recipe)}   plan {plan_hash(plan)[:12]}   {seed}"
    located = located_files(plan).stages
    costs = stage_costs(located)
    several = len(costs) > 1
    if several:
        yield from section("stages", job_lines(plan, costs), paint)
    for stage, opened, cost in zip(plan.stages, located, costs, strict=True):
        yield ""
        yield from _stage(plan, stage, cost, paint)
        yield from section("assumed", _sentences(assumptions(opened)), paint)
        yield from section("timing", timing_lines(plan, stage, latencies), paint)
    yield ""
    yield paint.title("the whole job")
    if several:
        yield from section("cost in USD", job_cost_lines(costs), paint)
    yield from section("expected", expectation_lines(plan, paint), paint)
    yield from section("writes", _sentences(written(plan)), paint)
    yield from section("needs", _sentences(needed(plan)), paint)


def _stage(plan: Plan, stage: StagePlan, cost: StageCost, paint: Paint) -> Lines:
    trains_by = STAGES[cost.kind].trains_by
    training = f" of {trains_by}" if trains_by else ""
    title = f"{count(cost.times, cost.unit)}{training} on {stage.model.service}"
    yield paint.title(f"stage {stage.name}: {title}")
    yield from section("values", value_lines(plan, stage, paint), paint)
    for name, lines in formula_sections(stage, paint):
        yield from section(name, lines, paint)
    yield from section(f"each {cost.unit}", step_lines(plan, stage), paint)
    yield from section("sizes", size_lines(stage, cost), paint)
    yield from section("cost", cost_lines(cost), paint)


def _sentences(sentences: Iterable[str]) -> Lines:
    for sentence in sentences:
        yield from wrapped(sentence, bullet="- ")
