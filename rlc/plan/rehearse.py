"""A rehearsal: the same job on the embedded tiny model, small and short."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rlc.catalog.models import LOCAL, TINY, find_model
from rlc.check.settle import leaves
from rlc.plan.graph import build_graph
from rlc.plan.tree import BatchPlan, ModelPlan, Plan, TrainPlan

ORIGIN = "--rehearse"
MAX_STEPS = 3
MAX_GROUPS, MAX_GROUP_SIZE = 4, 4
MAX_TURNS, MAX_PARALLEL = 16, 4
MAX_TOKENS = 24
MAX_RANK = 8


def rehearse(plan: Plan) -> Plan:
    """The plan to rehearse ``plan`` with: same stages, environments, wrappers, advantage, loss.

    What is changed says ``--rehearse`` in its provenance.
    """
    stages = tuple(_stage(stage) for stage in plan.stages)
    provenance = dict(plan.provenance)
    for before, after in zip(plan.stages, stages, strict=True):
        provenance |= _changes(before, after)
    return evolve(plan, stages=stages, graph=build_graph(stages), provenance=provenance)


def _stage(stage: TrainPlan) -> TrainPlan:
    return evolve(
        stage,
        model=_model(stage.model),
        batch=_batch(stage.batch),
        sampling=evolve(stage.sampling, max_tokens=min(stage.sampling.max_tokens, MAX_TOKENS)),
        steps=min(stage.steps, MAX_STEPS),
        budget_usd=None,
    )


def _model(model: ModelPlan) -> ModelPlan:
    tiny = find_model(TINY)
    assert tiny is not None
    return evolve(
        model,
        base=TINY,
        lora_rank=min(model.lora_rank, MAX_RANK),
        renderer=tiny.renderers[0],
        context=tiny.context,
        service=LOCAL,
    )


def _batch(batch: BatchPlan) -> BatchPlan:
    if batch.kind == "turns":
        parallel = min(batch.parallel or MAX_PARALLEL, MAX_PARALLEL)
        return evolve(batch, count=min(batch.count, MAX_TURNS), parallel=parallel)
    count, size = min(batch.count, MAX_GROUPS), min(batch.size, MAX_GROUP_SIZE)
    return evolve(batch, count=count, size=size)


def _changes(before: TrainPlan, after: TrainPlan) -> dict[str, Any]:
    path = f"stages.{before.name}"
    old = dict(leaves(before, path))
    return {name: ORIGIN for name, value in leaves(after, path) if old.get(name) != value}
