"""The records of a run: turns, rollouts, their usage of tokens, and the causes of failures.

The tracebacks of other threads, processes and executors are taken from the text that Python keeps
with an exception on its way between them.
"""

from __future__ import annotations

import json
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attrs import define, evolve, field, frozen

import rlc
from rlc.chat import NO_CHUNKS, Chunks, Verdict
from rlc.data import Steps, TaskFacts
from rlc.errors import Error
from rlc.plan import SOLVED

if TYPE_CHECKING:
    from tinker import types
    from tinker.types.topk_logprobs import TopkLogprobs

    from rlc.algo import Parts


FAILURES_FILE = "failures.jsonl"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_OURS = os.path.join(os.path.dirname(os.path.realpath(rlc.__file__)), "")
_PYTHON = os.path.join(os.path.realpath(sysconfig.get_path("stdlib")), "")
_CARRIERS = tuple(os.path.join(_PYTHON, name) for name in ("asyncio", "concurrent", "threading"))
_FRAME = re.compile(r'^[ |]+File "([^"<>]+)", line (\d+)', re.MULTILINE)
# Between an exception and what caused it, and around a traceback of another process.
_CHAINED = re.compile(
    r"^(?:The above exception was the direct|During handling of the above).*$", re.M
)
_QUOTED = (
    "concurrent.futures.process._RemoteTraceback",
    "rlc.envs.workers.processes.RemoteError",
    '"""',
)
# Parts that differ between failures of one cause: quoted text, numbers, addresses.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|0x[0-9a-fA-F]+|\d+")


@frozen
class Failure:
    """A cause of failed rollouts, and the first step that met it.

    ``key`` is the same for failures of one type at one place with messages that differ in quoted
    text and numbers only. ``place`` is the last line of the user's code that was running, as
    ``file:line``, or else that of a library; None if only rlc's own code was.
    """

    key: str
    error: str
    place: str | None
    traceback: str = field(repr=False)
    stage: str = ""
    step: int | None = None

    def __str__(self) -> str:
        complete = self.place is None or self.error.endswith(f"{self.place})")
        return self.error if complete else f"{self.error} ({self.place})"


def failure_of(error: BaseException) -> Failure:
    """Describe an exception, with the exceptions that caused it. Half of a surrogate pair in its
    message, which no file can hold, is written as an escape."""
    text = _encodable("".join(traceback.format_exception(error)))
    name = type(error).__name__
    lines = _encodable(str(error)).strip().splitlines()
    message = f"{name}: {lines[0]}" if lines else name
    place = _place(text)
    if place is not None:
        text = _without_machinery(text)
    content = "\n".join((name, place or "", _VARYING.sub("…", message)))
    key = blake2b(content.encode(), digest_size=6).hexdigest()
    here = os.path.join(os.getcwd(), "")  # files are named as seen from there
    return Failure(key, message, None if place is None else place.removeprefix(here), text)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_failures(folder: Path) -> list[Failure]:
    """Return the causes of failures of a run, in their order."""
    file = folder / FAILURES_FILE
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError):  # damaged by a crash or an editor
            found.append(Failure(**json.loads(line)))
    return found


def _place(text: str) -> str | None:
    """Return the last line of the user's code in a traceback, or else the last outside rlc."""
    found, own = None, False
    for match in _FRAME.finditer(text):
        file, line = match.groups()
        real = os.path.realpath(file)
        if real.startswith(_OURS):
            continue
        mine = not (real.startswith(_PYTHON) or "site-packages" in real or "dist-packages" in real)
        if mine or not own:
            found, own = f"{file}:{line}", mine
    return found


def _without_machinery(text: str) -> str:
    """Return a traceback without the frames of rlc and of calls between processes."""
    parts = []
    for part in _CHAINED.split(text):
        kept, depth, skipped = list[str](), 0, False
        for line in part.strip().splitlines():
            indent = len(line) - len(line.lstrip())
            if frame := _FRAME.match(line):
                depth, skipped = indent, os.path.realpath(frame[1]).startswith((_OURS, *_CARRIERS))
            elif indent <= depth:
                skipped = False
            if not (skipped or line.startswith(_QUOTED)):
                kept.append(line)
        if any(map(_FRAME.match, kept)):
            parts.append("\n".join(kept))
    return "\n\nand then\n\n".join(parts) + "\n"


class RunError(Error):
    """A run that cannot start or continue."""


def grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Return values in lists by their keys, in order."""
    groups: dict[K, list[V]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


@frozen
class TurnView:
    """The prompt and the reply of a turn as another model reads them."""

    prompt: Sequence[int] = field(repr=False)
    tokens: Sequence[int] = field(repr=False)
    chunks: Chunks = field(default=NO_CHUNKS, repr=False)


@frozen
class Turn:
    """One sampled reply.

    ``prompt`` has all tokens before it, with the marks of ``chunks``, which are not text.
    ``logprobs`` are the sampler's, ``topk`` its most likely tokens in the place of each, if
    requested. ``metrics``, ``reward``, ``components`` and ``verdicts`` are those of the observation
    that followed; ``move`` and ``others`` those of the one before, in the last turn also of the one
    after. A call in ``calls`` has an id, the tool's name and its arguments (JSON). ``sequence_id``
    is the service's name of the reply. ``views`` are those of other models. ``steps`` are process
    rewards by where a part of ``action`` ends; None if none are given.
    """

    prompt: Sequence[int] = field(repr=False)
    tokens: Sequence[int] = field(repr=False)
    logprobs: Sequence[float] = field(repr=False)
    observation: str
    action: str
    reward: float | None
    stop_reason: str
    metrics: Mapping[str, float] = field(factory=dict)
    calls: tuple[tuple[str, str, str], ...] = ()
    chunks: Chunks = field(default=NO_CHUNKS, repr=False)
    sequence_id: str = field(default="", repr=False)
    components: Mapping[str, tuple[float, float]] = field(factory=dict, repr=False)
    verdicts: tuple[Verdict, ...] = ()
    views: Mapping[str, TurnView] = field(factory=dict, repr=False)
    move: int | None = None
    others: tuple[tuple[int, int, str], ...] = field(default=(), repr=False)
    topk: TopkLogprobs | None = field(default=None, repr=False, eq=False)
    steps: Steps | None = None

    def seen_as(self, view: str) -> Turn:
        """Return the turn as another model reads it; logprobs of other tokens are 0."""
        shown = self.views[view]
        seen = evolve(self, prompt=shown.prompt, tokens=shown.tokens, chunks=shown.chunks)
        if shown.tokens is self.tokens:
            return seen
        return evolve(seen, logprobs=[0.0] * len(shown.tokens), topk=None)


FORM_RETRIES = "form_retries"  # of the metrics of an episode: replies that were sampled again


@frozen
class Rollout:
    """One episode of one member of a group, or one role's part of it.

    ``task`` numbers the environment's tasks. ``digest`` identifies the first observation, the same
    for all members. ``credit`` has one value a turn; ``raw`` is the reward before it was shaped,
    None if it was not; ``components`` are those of a credit that is a weighted sum.

    ``ended`` is an end of the environment's own (``done``, ``truncated``), a limit (``context``,
    ``prompt``, ``tokens``, ``turns``), ``form`` if replies to an agent had not the form that it
    asked for, or ``failed``. A rollout that failed after all retries has the ``error``, its
    ``cause`` in a word and the ``failure``; it has no credit and enters no statistics, unless the
    plan gives failures a reward. ``retried`` are the errors before.

    ``staleness`` counts the optimiser steps since the weights that it was sampled from, ``seconds``
    are the times of ``sampling`` and ``environment``. ``replaced``: all rewards of its group were
    equal, and another group is trained on in its place. ``about`` is the task's row of data,
    ``unplayed`` the metrics of an episode that ended before its first turn, as a game can.
    """

    env: str
    task: int
    member: int
    digest: str
    turns: tuple[Turn, ...]
    ended: str
    credit: tuple[float, ...]
    error: str | None = None
    role: str = ""
    staleness: int = 0
    seconds: Mapping[str, float] = field(factory=dict)
    cause: str | None = None
    failure: Failure | None = field(default=None, repr=False)
    replaced: bool = False
    about: TaskFacts | None = None
    raw: float | None = None
    components: Parts = field(factory=dict, repr=False)
    unplayed: Mapping[str, float] = field(factory=dict)
    retried: tuple[str, ...] = ()

    @property
    def solved(self) -> bool:
        """Whether the task is solved, by the reward before it was shaped."""
        return self.error is None and (self.reward if self.raw is None else self.raw) >= SOLVED

    @property
    def reward(self) -> float:
        return sum(self.credit)

    @property
    def last_metrics(self) -> Mapping[str, float]:
        """The environment's metrics of the last action."""
        return self.turns[-1].metrics if self.turns else self.unplayed

    def last_metric(self, kind: str) -> float:
        """Return one of them; 0 if there is none."""
        return self.last_metrics.get(kind, 0.0)

    @property
    def group(self) -> tuple[str, int]:
        return self.env, self.task


@frozen
class TrainedSample:
    """A row that a step has learnt from, with its measure before that in words. ``replies`` are
    texts after their roles: ``reply``, or ``chosen`` and ``rejected``."""

    place: str
    measured: str
    prompt: str
    replies: tuple[tuple[str, str], ...]


@define
class Usage:
    """Tokens used, by the kinds that a service charges for."""

    prefill: int = 0
    cached: int = 0
    sampled: int = 0
    trained: int = 0

    def add(self, usage: Usage, since: Usage) -> None:
        """Add what a usage has grown by since an earlier one."""
        self.prefill += usage.prefill - since.prefill
        self.cached += usage.cached - since.cached
        self.sampled += usage.sampled - since.sampled
        self.trained += usage.trained - since.trained

    def add_samples(self, prompt: int, count: int, response: types.SampleResponse) -> None:
        """Add a request for ``count`` samples of a prompt of so many tokens, which is charged as a
        cache hit for all samples but the first."""
        hits = response.prompt_cache_hit_tokens
        self.prefill += prompt - hits
        self.cached += hits + (count - 1) * prompt
        self.sampled += sum(len(sequence.tokens) for sequence in response.sequences)
