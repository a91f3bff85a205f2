"""The job graph: stages, the artifacts between them, and the step graph of each stage.

Overlap is a property of edges. An edge with ``delay = 1`` carries the result of the step before, so
a synchronous stage is the cycle ``snapshot -> … -> optim_step -(delay 1)-> snapshot``. With
``slack = k`` the result may be up to k steps older still: an asynchronous stage samples from such
weights while it trains. With ``parts = n`` it is carried in n parts, each as soon as it is there:
a streamed stage takes its gradient so. A barrier, computed from the whole batch, is an edge in one
part, which waits for all parts before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from rlc.algo import IN_TASK, SCORED, SHARED_BY, AdvantageScheme, reads, scope_of, statistics
from rlc.plan.leaves import asked_models
from rlc.plan.parts import (
    AggregatePlan,
    BatchPlan,
    KlPlan,
    LossPlan,
    ModelState,
    OverlapPlan,
    is_hosted,
)
from rlc.plan.stages import (
    Evaluation,
    Likelihood,
    PolicyGradient,
    PreferenceLoss,
    StagePlan,
    Table,
    Training,
    is_evaluation,
    is_training,
)
from rlc.records import Record, evolve, frozen


@frozen
class GraphNode(Record):
    """``kind`` names the work; the runtime has one function for each kind of step node."""

    id: str
    kind: str
    stage: str
    label: str


@frozen
class GraphEdge(Record):
    """``target`` waits for ``source``; ``carries`` names what flows.

    ``delay`` is in steps: an edge with delay 1 carries the result of the step before; with
    ``slack`` that of up to so many steps earlier. ``parts`` says in how many parts it is handed on.
    """

    source: str
    target: str
    carries: str
    delay: int = 0
    slack: int = 0
    parts: int = 1


@frozen
class Graph(Record):
    """The nodes of all stages, and what they wait for."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    @cached_property
    def nodes_of(self) -> Mapping[str, Sequence[GraphNode]]:
        """Return the nodes by their stages, in order."""
        found = defaultdict[str, list[GraphNode]](list)
        for node in self.nodes:
            found[node.stage].append(node)
        return found

    def edges_of(self, stage: str) -> tuple[GraphEdge, ...]:
        """Return the edges between nodes of a stage, in order."""
        own = {node.id for node in self.nodes_of[stage]}
        return tuple(edge for edge in self.edges if edge.source in own and edge.target in own)

    @cached_property
    def edges_at(self) -> Mapping[str, Sequence[GraphEdge]]:
        """Return the edges by the nodes at their two ends, in order."""
        found = defaultdict[str, list[GraphEdge]](list)
        for edge in self.edges:
            for node in {edge.source, edge.target}:
                found[node].append(edge)
        return found


_LABELS = {
    "snapshot": "freeze the weights for sampling",
    "rollouts": "play groups of episodes",
    "returns": "leave failures out, label rewards by group and environment",
    "advantages": "returns, baselines, scales, clips in the order of the scheme",
    "reference": "logprobs of the reference, for the KL penalty",
    "teacher": "logprobs of the teacher at each token",
    "datums": "merge turns, shift targets, spread advantages over tokens",
    "examples": "draw the next examples",
    "forward": "logprobs of the weights",
    "forward_backward": "gradient of the loss",
    "optim_step": "update the adapter",
    "heldout": "score the held-out examples when due",
    "checkpoint": "save weights and optimiser when due",
    "episodes": "play the tasks",
    "metrics": "count what was solved",
}

_ROLLOUT_EDGES = (
    GraphEdge("snapshot", "rollouts", "weights"),
    GraphEdge("rollouts", "returns", "rewards"),
    GraphEdge("returns", "advantages", "rewards"),
    GraphEdge("returns", "datums", "tokens"),
    GraphEdge("advantages", "datums", "advantages"),
)
_STEP_EDGES = (
    GraphEdge("forward_backward", "optim_step", "gradient"),
    GraphEdge("optim_step", "checkpoint", "weights"),
)
_UPDATE_EDGES = (
    GraphEdge("datums", "forward_backward", "datums"),
    *_STEP_EDGES,
    GraphEdge("optim_step", "snapshot", "weights", 1),
)
# The nodes of other models that read what was sampled.
SCORERS = ("reference", "teacher")
_LIKELIHOOD_EDGES = (
    GraphEdge("examples", "forward_backward", "datums"),
    *_STEP_EDGES,
    GraphEdge("optim_step", "forward_backward", "weights", 1),
)
_PREFERENCE_EDGES = (
    GraphEdge("examples", "forward", "datums"),
    GraphEdge("examples", "forward_backward", "datums"),
    GraphEdge("forward", "forward_backward", "logprobs"),
    *_STEP_EDGES,
    GraphEdge("optim_step", "forward", "weights", 1),
)
_EVAL_EDGES = (
    GraphEdge("snapshot", "episodes", "weights"),
    GraphEdge("episodes", "metrics", "rewards"),
)
# The kinds of node that ask the models in a part of a stage; elsewhere its first node does.
_ASKING = {
    "envs": ("rollouts", "episodes"),
    "data": ("examples",),
    "teacher": ("teacher",),
    "reference": ("reference",),
    "kl": ("reference",),
}
_LABELS_OF_PREFERENCES = {
    "examples": "draw the next preferences",
    "reference": "logprobs of the reference, once for each reply",
    "heldout": "compare the held-out preferences when due",
}
# What changes the weights: in order, one step after the other.
IN_ORDER = ("forward_backward", "optim_step", "checkpoint")
# What a streamed stage does for each part of a batch, up to the first of them that is a barrier.
_IN_PARTS = ("rollouts", "returns", *SCORERS, "advantages", "datums", "forward_backward")


def build_graph(stages: Iterable[StagePlan]) -> Graph:
    """Return the graph of a whole job, in the order of its stages."""
    nodes: dict[str, GraphNode] = {}
    edges: list[GraphEdge] = []

    def weights(state: ModelState, fresh: str = "") -> str:
        """Return the node that a model's weights come from."""
        model, name = state.model, f"model.{state.model.name}"
        if state.after is not None:
            return f"{state.after}.optim_step"
        adapter = f" + LoRA from {model.weights}" if model.weights else fresh
        nodes.setdefault(name, GraphNode(name, "model", "", f"{model.base}{adapter}"))
        return name

    for stage in stages:
        start, own = weights(ModelState(stage.model, stage.after), " + LoRA"), _EDGES[stage](stage)
        if stage.heldout is not None:
            own += (GraphEdge("optim_step", "heldout", "weights"),)
        own_labels = _LABELS_OF_PREFERENCES if stage.preference else {}
        kinds = list(dict.fromkeys(end for edge in own for end in (edge.source, edge.target)))
        for kind in kinds:
            name, label = f"{stage.name}.{kind}", own_labels.get(kind, _LABELS[kind])
            nodes[name] = GraphNode(name, kind, stage.name, label)
        # The node that takes the weights of the step before; in an evaluation the first.
        first = next((edge.target for edge in own if edge.delay), own[0].source)
        edges.append(GraphEdge(start, f"{stage.name}.{first}", "weights"))
        for path, state in asked_models(stage):
            asking = _ASKING.get(path.partition(".")[0], ())
            node_of = next(kind for kind in (*asking, *kinds) if kind in kinds)
            edge = GraphEdge(weights(state), f"{stage.name}.{node_of}", "weights")
            if edge not in edges:
                edges.append(edge)
        edges.extend(_in_stage(stage, edge) for edge in own)
    return Graph(tuple(nodes.values()), tuple(edges))


def evaluations_of(stage: Training, stages: Iterable[StagePlan]) -> list[Evaluation]:
    """Return the evaluations of a stage among those of a job. They share its budget."""
    return [one for one in stages if is_evaluation(one) and one.after == stage.name]


def _policy_gradient_edges(stage: Training) -> tuple[GraphEdge, ...]:
    objective = stage.of(PolicyGradient)
    edges = list(_ROLLOUT_EDGES)
    for scorer, asked in zip(SCORERS, (objective.kl, objective.teacher), strict=True):
        if asked:
            edges += GraphEdge("returns", scorer, "tokens"), GraphEdge(scorer, "datums", "logprobs")
            if reads(objective.advantage, *(n for n, node in SCORED.items() if node == scorer)):
                edges.append(GraphEdge(scorer, "advantages", "logprobs"))
    return (*edges, *_UPDATE_EDGES)


def _preference_edges(stage: Training) -> tuple[GraphEdge, ...]:
    if stage.of(PreferenceLoss).reference is None:
        return _PREFERENCE_EDGES
    first, *others = _PREFERENCE_EDGES
    asked = GraphEdge("examples", "reference", "datums")
    return (first, asked, GraphEdge("reference", "forward_backward", "logprobs"), *others)


_EDGES: Table[Callable[[Any], tuple[GraphEdge, ...]]] = Table(
    {
        PolicyGradient: _policy_gradient_edges,
        Likelihood: lambda _: _LIKELIHOOD_EDGES,
        PreferenceLoss: _preference_edges,
        Evaluation: lambda _: _EVAL_EDGES,
    }
)


@frozen
class Barrier:
    """A node that needs the whole batch (in ``why``: "it"), for what is at a stage's ``path``."""

    node: str
    path: str
    why: str


def barriers(
    advantage: AdvantageScheme,
    loss: LossPlan,
    aggregate: AggregatePlan,
    kl: KlPlan | None,
    batch: BatchPlan,
) -> Iterator[Barrier]:
    """Yield what a stage of these parts computes from a whole batch, before its first gradient.

    A weight that all sequences share is no exception: Adam's moments, its eps and the clipping of
    gradients take the gradient as it is, so it cannot be scaled once it is accumulated. The scores
    of a teacher do not depend on other tokens, so nothing waits for a batch of them.
    """
    if advantage.function is not None:
        yield Barrier("advantages", "advantage", f"`{advantage.function}` is given all of it")
    for path, node in statistics(advantage):
        over = scope_of(node)
        if over not in IN_TASK:
            why = f"`over = {over}` in the advantage compares all of it"
            yield Barrier("advantages", path, why)
    if loss.program is not None:
        from rlc.algo import needs_batch  # most recipes have no loss of their own

        if needs_batch(loss.program):
            yield Barrier("datums", "loss", f"`{loss.name}` computes something over it")
    if SHARED_BY[aggregate.kind] is not None:
        yield Barrier("datums", "aggregate", f"`{aggregate.kind}()` weighs by it")
    if kl is not None and kl.coef:
        yield Barrier("datums", "kl", "`kl` takes the mean distance over it")
    if batch.updates > 1:
        yield Barrier("datums", "batch.updates", f"`updates = {batch.updates}` splits it")
    if batch.kind == "turns":
        yield Barrier("datums", "batch", f"`turns({batch.count:_})` chooses among all of it")


def compares_in_groups(advantage: AdvantageScheme) -> bool:
    """Return whether the members of a group are compared with each other."""
    return any(scope_of(node) in IN_TASK for _, node in statistics(advantage))


def in_parts(stage: Training) -> tuple[str, ...]:
    """Return the kinds of node that run once for each part of a batch."""
    rollouts, objective = stage.rollouts, stage.policy_gradient
    if rollouts is None or objective is None or rollouts.overlap.minibatches == 1:
        return ()
    given = objective.advantage, objective.loss, objective.aggregate, objective.kl, rollouts.batch
    waiting = [_IN_PARTS.index(barrier.node) for barrier in barriers(*given)]
    return _IN_PARTS[: min(waiting, default=len(_IN_PARTS))]


def _in_stage(stage: StagePlan, edge: GraphEdge) -> GraphEdge:
    slack, parts = 0, 1
    if is_training(stage) and stage.rollouts is not None:
        if edge.target == "snapshot":
            slack = stage.rollouts.overlap.max_staleness
        if {edge.source, edge.target} <= set(in_parts(stage)):
            parts = stage.rollouts.overlap.minibatches
    source, target = f"{stage.name}.{edge.source}", f"{stage.name}.{edge.target}"
    return evolve(edge, source=source, target=target, slack=slack, parts=parts)


def takes_what_is_ready(overlap: OverlapPlan, service: str) -> bool:
    """Return whether a part of a batch has the groups that are ready, instead of a fixed choice.

    If sampling and training share a processor there is nothing to gain, and the sum of a gradient's
    parts would differ in its last bits from run to run.
    """
    chosen = overlap.order or ("ready" if is_hosted(service) else "fixed")
    return overlap.minibatches > 1 and chosen == "ready"
