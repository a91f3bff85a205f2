"""The plan: every value decided, nothing left to a default.

An immutable tree of plain values. Where each value came from is kept beside the tree, in
``Plan.provenance``, keyed by the dotted path of the leaf (``stages.main.optimizer.beta1``),
so that moving a line in a recipe leaves the content hash alone.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

from rlc.algo.scheme import AdvantageScheme

SCHEMA_VERSION = 1


@frozen
class ModelPlan:
    """A base model with a fresh LoRA adapter."""

    name: str
    base: str
    lora_rank: int
    train_mlp: bool
    train_attn: bool
    train_unembed: bool
    renderer: str
    context: int | None  # tokens; None where unknown
    service: str  # "local" or "tinker"


@frozen
class StepPlan:
    """One stage of an ``env`` pipeline: ``concat()``, ``chat(instruction = "…")``."""

    name: str
    args: dict[str, Any]


@frozen
class EnvPlan:
    """One environment of a mixture. ``args`` are the source's own keyword arguments."""

    name: str
    weight: float
    source: str
    id: str
    args: dict[str, Any]
    wrappers: tuple[StepPlan, ...]
    max_turns: int | None  # what the environment itself allows; None where unknown


@frozen
class BatchPlan:
    """What one step collects.

    ``groups``: ``count`` groups of ``size`` rollouts. ``turns``: episodes from ``parallel``
    environments (groups of one) until at least ``count`` turns, then a random subsample of
    exactly ``count``.
    """

    kind: Literal["groups", "turns"]
    count: int
    size: int
    parallel: int | None


@frozen
class SamplingPlan:
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int


@frozen
class LossPlan:
    """A loss of the service, with its whole configuration (nothing left to the server)."""

    name: str
    config: dict[str, float]


@frozen
class AdamPlan:
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float  # 0 means no clipping


@frozen
class SavePlan:
    """A checkpoint after every ``every`` steps and at the end; the newest ``keep`` are kept."""

    every: int | None  # None: only at the end
    keep: int
    ttl_seconds: int | None


@frozen
class FailurePlan:
    """What happens to a rollout whose environment or sampling call fails."""

    retries: int
    then: Literal["drop", "stop"]


@frozen
class TrainPlan:
    """One training stage."""

    name: str
    model: ModelPlan
    envs: tuple[EnvPlan, ...]
    batch: BatchPlan
    sampling: SamplingPlan
    advantage: AdvantageScheme
    loss: LossPlan
    optimizer: AdamPlan
    steps: int
    save: SavePlan
    on_error: FailurePlan
    budget_usd: float | None


@frozen
class GraphNode:
    """``kind`` names the work; the runtime has one function for each kind of step node."""

    id: str
    kind: str
    stage: str
    label: str


@frozen
class GraphEdge:
    """``target`` waits for ``source``; ``carries`` names what flows.

    ``delay`` is in steps: an edge with delay 1 carries the result of the step before.
    """

    source: str
    target: str
    carries: str
    delay: int = 0


@frozen
class Graph:
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


@frozen
class Plan:
    """A whole job. ``plan_hash`` is computed from everything but ``recipe`` and ``provenance``
    (:func:`rlc.plan.codec.plan_hash`)."""

    recipe: str
    seed: int
    stages: tuple[TrainPlan, ...]
    graph: Graph
    provenance: dict[str, str] = field(factory=dict, eq=False)
    schema_version: int = SCHEMA_VERSION
