"""A plan for a program: the same as the text, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlc.catalog import located_files, prices_as_of
from rlc.explanation.formulas.stages import loss_scale, stage_formulas
from rlc.explanation.job.expectations import expectation_dicts
from rlc.explanation.job.requirements import needed, written
from rlc.explanation.sizes import datum_sentence, stage_timing
from rlc.lang import Diagnostics, finding_dicts
from rlc.plan import SCHEMA_VERSION, Plan, StagePlan, is_training, plan_hash, plan_to_dict
from rlc.pricing import KINDS, LEVELS, Money, StageCost, Tokens, bill_of, stage_costs, total_cost
from rlc.pricing.assumptions import assumptions
from rlc.pricing.critical_path import Latencies
from rlc.records import asdict

if TYPE_CHECKING:
    from rlc.compile import Sweep


def explain_dict(
    plan: Plan | None,
    recipe: str,
    found: Diagnostics,
    latencies: Latencies | None = None,
    sweeps: Sequence[Sweep] = (),
) -> dict[str, Any]:
    """Return plain data for JSON; without a plan it holds only diagnostics. It has ``timing`` if
    ``latencies`` are given, ``expectations`` and ``sweeps`` if there are any."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "plan_hash": None,
        "recipe": recipe,
        "stages": [],
        "graph": {"nodes": [], "edges": []},
        "cost": None,
    }
    if plan is not None:
        plain = plan_to_dict(plan)
        stages = zip(plan.stages, plain["stages"], strict=True)
        data |= {
            "plan_hash": plan_hash(plan),
            "stages": [_stage_dict(plan, stage, record) for stage, record in stages],
            "graph": plain["graph"],
            "cost": cost_dict(plan),
        }
        if plan.expectations:
            data["expectations"] = expectation_dicts(plan)
        if latencies is not None:
            timings = (stage_timing(plan, stage, latencies) for stage in plan.stages)
            data["timing"] = [timing for timing in timings if timing is not None]
    if sweeps:
        from rlc.explanation.job.sweeps import sweep_dicts  # most recipes have none

        data["sweeps"] = sweep_dicts(sweeps)
    return data | {"diagnostics": finding_dicts(found)}


# What a stage's record has beside the plan's own fields.
ADDED = ("seed", "formulas", "datums", "loss_scale", "writes", "needs", "provenance")


def _stage_dict(plan: Plan, stage: StagePlan, record: dict[str, Any]) -> dict[str, Any]:
    prefix = f"stages.{stage.name}."
    origins = {path: origin for path, origin in plan.provenance.items() if path.startswith(prefix)}
    alone = Plan(plan.recipe, plan.seed, (stage,), plan.graph)
    added = {
        "seed": plan.seed,
        "formulas": stage_formulas(stage),
        "datums": {env.name: datum_sentence(env, stage.model) for env in stage.environments},
        "loss_scale": asdict(loss_scale(stage)) if is_training(stage) and stage.rollouts else None,
        "writes": list(written(alone)),
        "needs": needed(alone),
        "provenance": {path.removeprefix(prefix): origin for path, origin in origins.items()},
    }
    return {**record, **added}


def cost_dict(plan: Plan) -> dict[str, Any]:
    """Estimates by level; a null total is unknown, and ``at_least`` its lower bound."""
    located = located_files(plan).stages
    costs = stage_costs(located)
    return {
        "currency": "USD",
        "prices": prices_as_of(),
        "kinds": list(KINDS),
        **_amounts({level: total_cost(costs, level) for level in LEVELS}),
        "bill": {level: _total(bill_of(costs, level)) for level in LEVELS},
        "stages": [
            _stage_cost_dict(stage, cost) for stage, cost in zip(located, costs, strict=True)
        ],
    }


def _stage_cost_dict(stage: StagePlan, cost: StageCost) -> dict[str, Any]:
    return {
        "stage": cost.stage,
        "kind": cost.kind,
        "times": cost.times,
        "free": cost.free,
        "step": {
            level: {
                "tokens": _tokens(cost.step_tokens[level]),
                "total": cost.step[level].total,
                "at_least": cost.step[level].usd,
            }
            for level in LEVELS
        },
        "tokens_before": {level: _tokens(cost.tokens_before[level]) for level in LEVELS},
        "bill": {level: _total(cost.bill[level]) for level in LEVELS},
        **_amounts({level: cost.total(level) for level in LEVELS}),
        "assumptions": assumptions(stage),
    }


def _amounts(totals: dict[Any, Money]) -> dict[str, Any]:
    at_least = {level: money.usd for level, money in totals.items()}
    return {"total": _total(totals), "at_least": at_least}


def _total(amounts: dict[Any, Money]) -> dict[Any, float | None]:
    return {name: money.total for name, money in amounts.items()}


def _tokens(tokens: Tokens) -> dict[str, int]:
    return {kind: round(number) for kind, number in asdict(tokens).items()}
