"""The contents of a run as the browser reads them, again and again while the run goes on; and the
queries by which episodes are found: ``env:sudoku reward<0.5 is:failed "so the"``."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from rlc.cli.transcripts import TokenReader, games_of, system_messages
from rlc.errors import Error
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
    episode_of,
    read_failures,
    read_metrics,
    read_run,
    version_of,
)

if TYPE_CHECKING:
    from rlc.report.episodes import StepComparison

_TERM = re.compile(r'"([^"]*)"|(\S+)')
_COMPARED = re.compile(r"reward(>=|<=|>|<|=)(.*)")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": math.isclose,
}
_NAMES, _NUMBERS = ("env", "stage", "role", "ended"), ("step", "task", "member")
_STATES = ("failed", "retried", "replaced")
TERMS = (
    ("word, several words", "in what was said, or why it failed; all have to be"),
    ('"two words"', "together"),
    ("env:NAME stage:NAME role:NAME ended:HOW", "of that name"),
    ("step:40 step:40..60 task:7 member:2", "that number, or from one to another"),
    ("reward>0.5 reward<=0 reward=1", "that reward"),
    ("is:failed is:retried is:replaced", "what became of it"),
    ("row:ID", "the row of data with that id"),
)


class QueryError(Error):
    """A term that is no query."""


@frozen
class Query:
    """Conditions on the beginning of an episode's line (``of_head``), or on all of it."""

    of_head: tuple[Callable[[EpisodeHead], bool], ...] = ()
    of_record: tuple[Callable[[Record], bool], ...] = ()
    words: tuple[str, ...] = ()

    @property
    def reads_lines(self) -> bool:
        return bool(self.of_record or self.words)

    def fits_head(self, head: EpisodeHead) -> bool:
        return all(fits(head) for fits in self.of_head)

    def fits_line(self, line: bytes) -> bool:
        """Return whether the episode on a line fits, if its beginning does."""
        if not self.reads_lines:
            return True
        lower = line.lower() if self.words else b""  # most lines are sorted out unparsed
        ascii_words = (json.dumps(word)[1:-1] for word in self.words if word.isascii())
        if not all(word.encode() in lower for word in ascii_words):
            return False
        record = episode_of(line)
        if record is None or not all(fits(record) for fits in self.of_record):
            return False
        text = "\n".join(_texts(record)).lower()
        return all(word in text for word in self.words)


def parse_query(text: str) -> Query:
    """Return the query that a text is. Raise QueryError if a term of it means nothing."""
    of_head, of_record = list[Callable[[EpisodeHead], bool]](), list[Callable[[Record], bool]]()
    words = list[str]()
    for quoted, plain in _TERM.findall(text):
        name, colon, value = plain.partition(":")
        name = name if colon else ""
        if compared := _COMPARED.fullmatch(plain):
            of_head.append(_of_reward(*compared.groups()))
        elif on_head := _of_head(name, value):
            of_head.append(on_head)
        elif on_record := _of_record(name, value):
            of_record.append(on_record)
        elif name == "is":
            hint = f"known: {', '.join(f'is:{state}' for state in _STATES)}"
            raise QueryError(f"`{plain}` means nothing here", hint)
        else:
            words.append((quoted or plain).lower())
    return Query(tuple(of_head), tuple(of_record), tuple(filter(None, words)))


def _of_reward(sign: str, value: str) -> Callable[[EpisodeHead], bool]:
    try:
        number = float(value)
    except ValueError:
        hint = f"write a number: reward{sign}0.5"
        raise QueryError(f"`reward{sign}{value}` means nothing here", hint) from None
    return lambda head: _OPERATORS[sign](head.reward, number)


def _of_head(name: str, value: str) -> Callable[[EpisodeHead], bool] | None:
    if name in _NAMES:
        return lambda head: bool(getattr(head, name) == value)
    if name in _NUMBERS:
        if not re.fullmatch(r"\d+|\d+\.\.\d*|\.\.\d+", value):
            hint = f"write {name}:7, {name}:7..9, {name}:7.. or {name}:..9"
            raise QueryError(f"`{name}:{value}` means nothing here", hint)
        low, dots, high = value.partition("..")
        least = int(low or 0)
        most = (int(high) if high else math.inf) if dots else least
        return lambda head: least <= getattr(head, name) <= most
    return (lambda head: head.error is not None) if (name, value) == ("is", "failed") else None


def _of_record(name: str, value: str) -> Callable[[Record], bool] | None:
    if name == "row":
        return lambda record: str((record.get("about") or {}).get("id")) == value
    return (lambda record: bool(record.get(value))) if name == "is" and value in _STATES else None


def _texts(record: Record) -> Iterator[str]:
    yield record.get("error") or ""
    yield from record.get("retried", ())
    for turn in record["turns"]:
        yield turn["observation"]
        yield turn["action"]
        yield from (f"{name} {given}" for _, name, given in turn.get("calls", ()))
        yield from (verdict["reason"] for verdict in turn.get("verdicts", ()))
        yield from (text for _, _, text in turn.get("others", ()))


Step = tuple[str, int]  # the name of a stage, and a step of it
Group = tuple[str, int]  # an environment, and a task of it
# What records of older versions do not have.
_WITHOUT: Record = {"role": "", "staleness": 0, "advantages": [], "turns": [], "error": None}
_FILES = (METRICS_FILE, ROLLOUTS_FILE, FAILURES_FILE, JOURNAL_FILE, f"{JOURNAL_FILE}-wal")
_BATCH = 2_000  # episodes between two looks at whether to go on


@define(eq=False, slots=False)
class RunContents:
    """A run as far as it has been read. One thread may read on while another shows it.
    ``shown`` are those of its episodes that the query finds."""

    folder: Path
    heads: list[EpisodeHead] = field(factory=list, init=False)  # in the order of the file
    shown: dict[Step, dict[Group, list[EpisodeHead]]] = field(factory=dict, init=False)
    found: int = field(default=0, init=False)  # how many are shown
    metrics: dict[Step, Record] = field(factory=dict, init=False)
    failures: Mapping[str, Failure] = field(factory=dict, init=False)
    generation: int = field(default=0, init=False)  # how often the search was begun anew
    caught_up: bool = field(default=False, init=False)  # all that is written has been read
    query: Query = field(factory=Query, init=False)  # the next :meth:`read_on` applies it
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
        """Read what has been written since, and apply the query; yield now and then, and if there
        was anything new. Return where ``stopped`` returns True."""
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
        return self._index.read_share()

    def record(self, head: EpisodeHead) -> Record | None:
        """Return an episode as it was written; None if it is no longer where it was."""
        record = self._index.record(head)
        return None if record is None else {**_WITHOUT, **record, "reply": head.reply}

    def stage(self, name: str) -> StagePlan | None:
        return next((stage for stage in self.plan.stages if stage.name == name), None)

    def group(self, head: EpisodeHead) -> list[EpisodeHead]:
        """Return all members of the group of an episode, also those that the query leaves out."""
        key = attrgetter("stage", "step", "env", "task")
        return [one for one in tuple(self.heads) if key(one) == key(head)]

    def match(self, head: EpisodeHead) -> list[Record]:
        """Return the parts of all seats of a match, or the one episode that is no match."""
        parts = [self.record(one) for one in self.group(head) if one.member == head.member]
        return [part for part in parts if part is not None]

    def steps(self) -> dict[str, list[int]]:
        """Return the steps of each stage that have something to show, in their order."""
        known = set(self.shown)
        if not self.is_filtered:
            known |= self.metrics.keys()
        names = dict.fromkeys(stage.name for stage in self.plan.stages)
        found = {name: sorted(step for stage, step in known if stage == name) for name in names}
        return {name: steps for name, steps in found.items() if steps}

    def groups(self, step: Step) -> dict[Group, list[EpisodeHead]]:
        return dict(sorted(self.shown.get(step, {}).items()))

    def episodes(self, step: Step) -> list[EpisodeHead]:
        return [head for group in self.groups(step).values() for head in group]

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
