"""Executes the step graph of a stage: the plan's edges are the schedule.

Each node runs as soon as the nodes it waits for have finished. Three numbers of an edge say how
steps overlap:

``delay``   hands on the output of the step before.
``slack``   of a delayed edge: the step before may be up to so many steps earlier. It always is
            just that many, so that a run can be repeated: a step starts when the step ``delay +
            slack`` before it is done, or with the first where there is none.
``parts``   the nodes between run once for each part of a batch, each part as soon as it is there.

What changes the weights happens in order, one step after the other, and not before the step
before is safe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import define, field, frozen

from rlc.plan.graph import IN_ORDER
from rlc.plan.records import Graph, GraphEdge, GraphNode
from rlc.runtime.concurrency import first_cause

T = TypeVar("T")


@frozen
class NodeContext:
    """Where in a stage a node runs: the step, and the part of its batch. ``source`` is the step
    whose results its delayed edges hand on; 0 is the beginning of the stage."""

    step: int
    part: int = 0
    parts: int = 1
    source: int = 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """What of some items falls to this part; all of them where there is only one."""
        first, last = (len(items) * part // self.parts for part in (self.part, self.part + 1))
        return items[first:last]


StepFunction = Callable[[NodeContext, Mapping[str, Any]], Awaitable[Any]]
# Told the kind of a node, where it ran, and when: start and end, in seconds since the epoch.
OnSpan = Callable[[str, NodeContext, float, float], None]


class Parts(list[Any]):
    """The outputs of a node that ran in parts, in order."""

    @classmethod
    def of(cls, output: Any) -> Parts:
        """The parts of any output: one that was made whole is its only part."""
        return output if isinstance(output, cls) else cls([output])


@frozen
class StepOutcome:
    """What each node made (:class:`Parts` where it ran in parts) and how long it worked
    (seconds), by the kind of the node."""

    outputs: dict[str, Any]
    seconds: dict[str, float]


@frozen
class StageGraph:
    """The nodes of one stage and the edges between them."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    kinds: dict[str, str]
    parts: dict[str, int]

    @classmethod
    def of(cls, graph: Graph, stage: str) -> StageGraph:
        nodes = tuple(node for node in graph.nodes if node.stage == stage)
        kinds = {node.id: node.kind for node in nodes}
        edges = tuple(e for e in graph.edges if e.target in kinds and e.source in kinds)
        parts = {
            node_id: max([1, *(e.parts for e in edges if node_id in (e.source, e.target))])
            for node_id in kinds
        }
        return cls(nodes, edges, kinds, parts)

    @property
    def slack(self) -> int:
        """The most steps that anything may be older than the step before."""
        return max((edge.slack for edge in self.edges), default=0)

    def incoming(self, node: GraphNode) -> list[GraphEdge]:
        return [edge for edge in self.edges if edge.target == node.id]


@define(eq=False)
class _Step:
    """One step under way: a task for each part of each node."""

    shape: StageGraph
    number: int
    source: int
    before: StepOutcome | None  # what delayed edges hand on, where this process has it
    on_span: OnSpan
    turn: asyncio.Event = field(factory=asyncio.Event)
    tasks: dict[str, list[asyncio.Task[tuple[Any, float]]]] = field(factory=dict)

    def start(self, functions: Mapping[str, StepFunction], group: asyncio.TaskGroup) -> None:
        for node in self.shape.nodes:
            parts = self.shape.parts[node.id]
            self.tasks[node.id] = [
                group.create_task(
                    self._run(node, NodeContext(self.number, part, parts, self.source), functions)
                )
                for part in range(parts)
            ]

    async def launched(self) -> None:
        """Wait until all that delayed edges lead to is done: what it reads may change now."""
        for edge in self.shape.edges:
            if edge.delay and self.shape.kinds[edge.target] not in IN_ORDER:
                await asyncio.gather(*self.tasks[edge.target])

    async def outcome(self) -> StepOutcome:
        outputs, seconds = {}, {}
        for node_id, tasks in self.tasks.items():
            made = [await task for task in tasks]
            kind, results = self.shape.kinds[node_id], Parts(output for output, _ in made)
            outputs[kind] = results if len(results) > 1 else results[0]
            seconds[kind] = sum(spent for _, spent in made)
        return StepOutcome(outputs, seconds)

    def cancel(self) -> None:
        for task in self._all():
            task.cancel()

    def _all(self) -> Iterable[asyncio.Task[Any]]:
        return (task for tasks in self.tasks.values() for task in tasks)

    async def _run(
        self, node: GraphNode, at: NodeContext, functions: Mapping[str, StepFunction]
    ) -> tuple[Any, float]:
        incoming = self.shape.incoming(node)
        inputs = await self._inputs(incoming, at)
        if node.kind in IN_ORDER:
            await self.turn.wait()
        if at.part and any(edge.parts > 1 for edge in incoming):
            await self.tasks[node.id][at.part - 1]
        clock, started = time.time(), time.perf_counter()
        output = await functions[node.kind](at, inputs)
        spent = time.perf_counter() - started
        self.on_span(node.kind, at, clock, clock + spent)
        return output, spent

    async def _inputs(self, edges: list[GraphEdge], at: NodeContext) -> dict[str, Any]:
        """The outputs that a node waits for, by the kind of the node that made them."""
        inputs: dict[str, Any] = {}
        for edge in edges:
            kind = self.shape.kinds[edge.source]
            if edge.delay == 0:
                tasks = self.tasks[edge.source]
                wanted = [tasks[at.part]] if at.parts == len(tasks) else tasks
                made = Parts([(await task)[0] for task in wanted])
                inputs[kind] = made if len(made) > 1 else made[0]
            elif self.before is not None:
                inputs[kind] = self.before.outputs[kind]
        return inputs


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

    ``begin`` is called as a step starts, with its source, ``commit`` as it is done, in order;
    where that gives False no more steps are done, and what later ones have begun is cancelled.
    ``on_span`` is told when each part of a node ran. While ``overlapping`` gives False, steps
    begin as if no edge had any slack, except those whose source is ``known``: they began before.
    ``settle`` returns once the last step is safe: until then the next changes nothing. A failing
    node cancels all others, and its error is raised.
    """
    pipeline = _Pipeline(StageGraph.of(graph, stage), functions, steps, on_span)
    pipeline.overlapping, pipeline.known, pipeline.settle = overlapping, known, settle
    try:
        async with asyncio.TaskGroup() as group:
            await pipeline.run(group, begin, commit)
    except BaseExceptionGroup as failures:
        raise first_cause(failures) from None


@define(eq=False)
class _Pipeline:
    shape: StageGraph
    functions: Mapping[str, StepFunction]
    steps: range
    on_span: OnSpan
    overlapping: Callable[[], bool] = lambda: True
    known: Mapping[int, int] = field(factory=dict)
    settle: Callable[[], Awaitable[None]] | None = None
    running: dict[int, _Step] = field(factory=dict)
    outcomes: dict[int, StepOutcome] = field(factory=dict)

    async def run(
        self,
        group: asyncio.TaskGroup,
        begin: Callable[[int, int], None],
        commit: Callable[[int, StepOutcome], Awaitable[bool]],
    ) -> None:
        fresh = self.steps.start
        for number in self.steps:
            while fresh in self.steps and self._source(fresh) < number:
                source = self._source(fresh)
                begin(fresh, source)
                before = self.outcomes.get(source)
                self.running[fresh] = _Step(self.shape, fresh, source, before, self.on_span)
                self.running[fresh].start(self.functions, group)
                await self.running[fresh].launched()
                fresh += 1
            step = self.running.pop(number)
            if self.settle is not None:
                await self.settle()
            step.turn.set()
            outcome = await step.outcome()
            self.outcomes[number] = outcome
            self.outcomes.pop(number - 1 - self.shape.slack, None)
            if not await commit(number, outcome):
                for later in self.running.values():
                    later.cancel()
                return

    def _source(self, step: int) -> int:
        """The step whose results the delayed edges of ``step`` hand on."""
        slack = self.shape.slack if self.overlapping() else 0
        return self.known.get(step, max(step - 1 - slack, 0))
