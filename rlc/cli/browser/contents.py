"""What the browser knows of a run: read piece by piece, and again as the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from attrs import define, field

from rlc.cli.browser.queries import Query
from rlc.cli.matches import games_of
from rlc.cli.tokens import TokenReader
from rlc.cli.transcripts import system_messages
from rlc.plan import JOURNAL_FILE, Plan, StagePlan
from rlc.report import read_plan
from rlc.runtime import (
    FAILURES_FILE,
    METRICS_FILE,
    ROLLOUTS_FILE,
    EpisodeHead,
    EpisodeIndex,
    Failure,
    Record,
    RunInfo,
    read_failures,
    read_metrics,
    read_run,
    version_of,
)

if TYPE_CHECKING:
    from rlc.report.episodes import StepComparison

Step = tuple[str, int]  # the name of a stage, and a step of it
Group = tuple[str, int]  # an environment, and a task of it
# What records of older versions do not have.
_WITHOUT: Record = {"role": "", "staleness": 0, "advantages": [], "turns": [], "error": None}
_FILES = (METRICS_FILE, ROLLOUTS_FILE, FAILURES_FILE, JOURNAL_FILE, f"{JOURNAL_FILE}-wal")
_BATCH = 2_000  # episodes between two looks at whether to go on


@define(eq=False, slots=False)
class RunContents:
    """A run as far as it has been read. One thread may read on while another one shows it.

    Attributes:
        folder: the folder of the run.
        heads: the beginnings of its episodes, in the order they were written.
        shown: those that are looked for, by stage and step, and there by group.
        found: how many these are.
        metrics: the metrics of each step.
        caught_up: whether all that is written has been read.
        query: what is looked for; the next :meth:`read_on` sorts it out.
        generation: counts how often that was begun anew.
    """

    folder: Path
    heads: list[EpisodeHead] = field(factory=list, init=False)
    shown: dict[Step, dict[Group, list[EpisodeHead]]] = field(factory=dict, init=False)
    found: int = field(default=0, init=False)
    metrics: dict[Step, Record] = field(factory=dict, init=False)
    failures: Mapping[str, Failure] = field(factory=dict, init=False)
    generation: int = field(default=0, init=False)
    caught_up: bool = field(default=False, init=False)
    query: Query = field(factory=Query, init=False)
    info: RunInfo = field(init=False)
    _index: EpisodeIndex = field(init=False)
    _sorted_by: Query = field(init=False)
    _version: tuple[object, ...] = field(default=(), init=False)
    _reading: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._index, self._sorted_by = EpisodeIndex(self.folder), self.query
        self._read_summary()

    @cached_property
    def plan(self) -> Plan:
        return read_plan(self.folder)

    @cached_property
    def tokens(self) -> TokenReader:
        return TokenReader(self.folder, self.plan)

    @cached_property
    def systems(self) -> dict[str, str]:
        return system_messages(self.plan)

    @cached_property
    def games(self) -> Mapping[tuple[str, str], tuple[Sequence[str], str]]:
        return games_of(self.plan)

    @property
    def is_filtered(self) -> bool:
        return self._sorted_by != Query()

    def read_on(self, stopped: Callable[[], bool]) -> Iterator[None]:
        """Read what has been written since, and sort out what is looked for; yield now and then,
        and at the end if there was anything new. It leaves off where ``stopped`` returns True.
        """
        with self._reading:
            self.caught_up = False
            changed = self._read_summary()
            replaced, query = self._index.was_replaced(), self.query
            if replaced or query is not self._sorted_by:
                self._sorted_by, self.shown, self.found = query, {}, 0
                self.generation += 1
                if replaced or query.reads_lines:
                    self._index, self.heads = EpisodeIndex(self.folder), []
                for head in filter(query.fits_head, self.heads):
                    self._show(head)
                changed = True
            for number, (head, line) in enumerate(self._index.read_on()):
                self.heads.append(head)
                if query.fits_head(head) and query.fits_line(line):
                    self._show(head)
                changed = True
                if number % _BATCH == _BATCH - 1:
                    yield
                    if stopped():
                        return
            self.caught_up = True
            if changed:
                yield

    def _show(self, head: EpisodeHead) -> None:
        groups = self.shown.setdefault((head.stage, head.step), {})
        groups.setdefault((head.env, head.task), []).append(head)
        self.found += 1

    def read_share(self) -> float:
        """Return how much of the episodes' file has been read, from 0 to 1."""
        return self._index.read_share()

    def record(self, head: EpisodeHead) -> Record | None:
        """Return an episode as it was written; None if it is no longer where it was."""
        record = self._index.record(head)
        return None if record is None else {**_WITHOUT, **record, "reply": head.reply}

    def stage(self, name: str) -> StagePlan | None:
        """Return the plan of a stage."""
        return next((stage for stage in self.plan.stages if stage.name == name), None)

    def group(self, head: EpisodeHead) -> list[EpisodeHead]:
        """Return all members of the group of an episode, also those that are not looked for."""
        same = (head.stage, head.step, head.env, head.task)
        return [
            one for one in tuple(self.heads) if (one.stage, one.step, one.env, one.task) == same
        ]

    def match(self, head: EpisodeHead) -> list[Record]:
        """Return the parts of all seats of a match, or the one episode that is no match."""
        parts = [self.record(one) for one in self.group(head) if one.member == head.member]
        return [part for part in parts if part is not None]

    def steps(self) -> dict[str, list[int]]:
        """Return the steps of each stage that there is something to show of, in their order."""
        known = set(self.shown)
        if not self.is_filtered:
            known |= self.metrics.keys()
        order = list(dict.fromkeys([stage.name for stage in self.plan.stages]))
        found = {name: sorted(step for stage, step in known if stage == name) for name in order}
        return {name: steps for name, steps in found.items() if steps}

    def groups(self, step: Step) -> dict[Group, list[EpisodeHead]]:
        """Return what is shown of a step, by group."""
        return dict(sorted(self.shown.get(step, {}).items()))

    def compared(self, step: Step) -> list[StepComparison]:
        """Return the preferences that a step of a stage compared; empty for other stages."""
        plan = self.stage(step[0])
        if plan is None or plan.preference is None:
            return []
        from rlc.report.episodes import comparisons  # it takes numpy

        return comparisons(self.folder, plan, step[1])

    def _read_summary(self) -> bool:
        """Read everything but the episodes, if something has been written since."""
        version = version_of(self.folder, _FILES)
        if version == self._version:
            return False
        self._version, self.info = version, read_run(self.folder)
        self.metrics = {(r["stage"], int(r["step"])): r for r in read_metrics(self.folder)}
        self.failures = {failure.key: failure for failure in read_failures(self.folder)}
        return True
