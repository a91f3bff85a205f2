"""Executes the step graph of a stage: the plan's edges are the schedule.

Each node runs as soon as the nodes that it waits for have finished. Three numbers of an edge say
how steps overlap:

``delay``   the edge carries the output of the step before.
``slack``   of a delayed edge: the output may be that many steps older still. It always is exactly
            as old, so that runs can be repeated: a step starts when the step ``delay + slack``
            before it is done, or with the first step if there is none.
``parts``   the nodes at its ends run once for each part of a batch, as soon as the part is ready.
            A node at the end of an edge in one part waits for all parts of the node before it.

The nodes that change the weights run in order, one step after the other, and not before the
checkpoint of the previous step is safe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import define, field, frozen

from rlc.envs import first_cause
from rlc.plan import IN_ORDER, Graph, GraphEdge


@frozen
class NodeContext:
    """The step of a node, and the part of its batch. ``source`` is the step whose output the
    delayed edges carry; 0 is the beginning of the stage."""

    step: int
    part: int = 0
    parts: int = 1
    source: int = 0


# The inputs of a node: the outputs of the nodes before it, by their kind.
Inputs = Mapping[str, Any]
StepFunction = Callable[[NodeContext, Inputs], Awaitable[Any]]
# Called with the kind of a node, its context, start and end (seconds since the epoch).
OnSpan = Callable[[str, NodeContext, float, float], None]


class Parts(list[Any]):
    """The outputs of a node that ran in parts, in order."""

    @classmethod
    def of(cls, output: Any) -> Parts:
        """Return the parts of an output, or the output as its only part."""
        return output if isinstance(output, cls) else cls([output])


@frozen
class StepOutcome:
    """The output (:class:`Parts` if there are several) and the seconds of each kind of node."""

    outputs: dict[str, Any]
    seconds: dict[str, float]


@frozen
class StageGraph:
    """The edges between the nodes of one stage; kinds and part counts by node id."""

    edges: tuple[GraphEdge, ...]
    kinds: dict[str, str]
    parts: dict[str, int]

    @classmethod
    def of(cls, graph: Graph, stage: str) -> StageGraph:
        kinds = {node.id: node.kind for node in graph.nodes_of[stage]}
        edges = graph.edges_of(stage)
        parts = {
            node_id: max([1, *(e.parts for e in edges if node_id in (e.source, e.target))])
            for node_id in kinds
        }
        return cls(edges, kinds, parts)

    @property
    def slack(self) -> int:
        return max((edge.slack for edge in self.edges), default=0)


@define(eq=False)
class _Step:
    """One running step: a task for each part of each node."""

    graph: StageGraph
    number: int
    source: int
    before: StepOutcome | None  # of the source, if this process ran it
    on_span: OnSpan
    may_change_weights: asyncio.Event = field(factory=asyncio.Event)
    tasks: dict[str, list[asyncio.Task[tuple[Any, float]]]] = field(factory=dict)

    def start(self, functions: Mapping[str, StepFunction], group: asyncio.TaskGroup) -> None:
        for node_id, parts in self.graph.parts.items():
            function = functions[self.graph.kinds[node_id]]
            contexts = [NodeContext(self.number, i, parts, self.source) for i in range(parts)]
            self.tasks[node_id] = [
                group.create_task(self._run(node_id, context, function)) for context in contexts
            ]

    async def launched(self) -> None:
        """Wait for the targets of the delayed edges, whose inputs may change afterwards."""
        for edge in self.graph.edges:
            if edge.delay and self.graph.kinds[edge.target] not in IN_ORDER:
                await asyncio.gather(*self.tasks[edge.target])

    async def outcome(self) -> StepOutcome:
        outputs, seconds = {}, {}
        for node_id, tasks in self.tasks.items():
            done = [await task for task in tasks]
            kind, results = self.graph.kinds[node_id], Parts(output for output, _ in done)
            outputs[kind] = results if len(results) > 1 else results[0]
            seconds[kind] = sum(spent for _, spent in done)
        return StepOutcome(outputs, seconds)

    def cancel(self) -> None:
        for tasks in self.tasks.values():
            for task in tasks:
                task.cancel()

    async def _run(
        self, node_id: str, context: NodeContext, function: StepFunction
    ) -> tuple[Any, float]:
        """Run a part of a node when its inputs are there; return output and seconds."""
        kind, inputs = self.graph.kinds[node_id], dict[str, Any]()
        incoming = [edge for edge in self.graph.edges if edge.target == node_id]
        for edge in incoming:
            source = self.graph.kinds[edge.source]
            if edge.delay == 0:
                tasks = self.tasks[edge.source]
                wanted = [tasks[context.part]] if context.parts == len(tasks) else tasks
                parts = Parts([(await task)[0] for task in wanted])
                inputs[source] = parts if len(parts) > 1 else parts[0]
            elif self.before is not None:
                inputs[source] = self.before.outputs[source]
        if kind in IN_ORDER:
            await self.may_change_weights.wait()
        if context.part and any(edge.parts > 1 for edge in incoming):
            await self.tasks[node_id][context.part - 1]
        clock, started = time.time(), time.perf_counter()
        output = await function(context, inputs)
        spent = time.perf_counter() - started
        self.on_span(kind, context, clock, clock + spent)
        return output, spent


async def run_steps(
    graph: Graph,
    stage: str,
    functions: Mapping[str, StepFunction],
    steps: range,
    *,
    begin: Callable[[int, int], None] = lambda *_: None,
    known: Mapping[int, int] = {},
    settle: Callable[[], Awaitable[None]] | None = None,
    on_span: OnSpan = lambda *_: None,
    overlapping: Callable[[], bool] = lambda: True,
    commit: Callable[[int, StepOutcome], Awaitable[bool]],
) -> None:
    """Run the steps of a stage, overlapped as far as its edges allow.

    A failing node cancels all others, and its error is raised.

    Args:
        graph: the graph of the plan, in which ``stage`` is the name of the stage.
        functions: the function of each kind of node.
        steps: numbers of the steps to run.
        begin: called with a step and its source when the step starts.
        known: sources of steps that an interrupted run had begun; they are kept.
        settle: returns once the previous step is safe; until then no weights are changed.
        on_span: called when a part of a node has run.
        overlapping: while it returns False, steps begin as if no edge had slack.
        commit: called in order with each finished step; if it returns False, the others are
            cancelled.
    """
    stage_graph = StageGraph.of(graph, stage)
    running, outcomes = dict[int, _Step](), dict[int, StepOutcome]()

    def source_of(step: int) -> int:
        slack = stage_graph.slack if overlapping() else 0
        return known.get(step, max(step - 1 - slack, 0))

    try:
        async with asyncio.TaskGroup() as group:
            next_step = steps.start
            for number in steps:
                while next_step in steps and (source := source_of(next_step)) < number:
                    begin(next_step, source)
                    step = _Step(stage_graph, next_step, source, outcomes.get(source), on_span)
                    running[next_step] = step
                    step.start(functions, group)
                    await step.launched()
                    next_step += 1
                step = running.pop(number)
                if settle is not None:
                    await settle()
                step.may_change_weights.set()
                outcomes[number] = await step.outcome()
                outcomes.pop(number - 1 - stage_graph.slack, None)
                if not await commit(number, outcomes[number]):
                    for later in running.values():
                        later.cancel()
                    break
    except BaseExceptionGroup as failures:
        first = first_cause(failures)
        raise first from first.__cause__  # not the group
