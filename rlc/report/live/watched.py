"""The page about runs that go on, made anew when something in their folders has changed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import define, field, frozen

from rlc.plan.paths import JOURNAL_FILE, PLAN_FILE
from rlc.report.episodes import StepEpisodes
from rlc.report.pages.choice import page_html, shown_folders
from rlc.runtime.failures import FAILURES_FILE
from rlc.runtime.journal.metrics import METRICS_FILE
from rlc.runtime.journal.runs import version_of
from rlc.runtime.journal.timeline import TIMELINE_FILE
from rlc.sweeps.journal import SWEEP_FILE
from rlc.sweeps.read import TRIALS, is_sweep, runs_in

# What is written at each step. A journal's newest pages are in the file beside it.
_FILES = (
    *(PLAN_FILE, JOURNAL_FILE, f"{JOURNAL_FILE}-wal", SWEEP_FILE, f"{SWEEP_FILE}-wal"),
    *(METRICS_FILE, TIMELINE_FILE, FAILURES_FILE),
)
_REST = 4.0  # at least so many times as long as it took to make a page nothing is made


@frozen
class Made:
    """A page, and the state of the folders that it was made of."""

    version: str
    html: bytes


@define
class Watched:
    """The page about what is in ``roots``, also what comes to be there. ``clock`` counts seconds.

    Attributes:
        folders: what the page shows; what is new comes last, so that each run keeps its letter.
    """

    roots: Sequence[Path]
    clock: Callable[[], float] = time.monotonic
    folders: Sequence[Path] = field(default=(), init=False)
    _episodes: StepEpisodes | None = None
    _made: Made | None = None
    _rests_until: float = 0.0
    _lock: threading.Lock = field(factory=threading.Lock)

    def page(self) -> Made:
        """Return the page as it is now, or a short while ago where it takes long to make. Raise
        RunError if it cannot be read."""
        with self._lock:
            begun = [root for root in self.roots if not _is_to_come(root)]
            there = shown_folders(begun) if begun else []
            kept = [folder for folder in self.folders if folder in there]
            self.folders = kept + [folder for folder in there if folder not in kept]
            version = version_of_all(self.folders)
            began = self.clock()
            if self._made is None or (version != self._made.version and began >= self._rests_until):
                alone = self.folders[0] if len(self.folders) == 1 else None
                if alone is not None and (self._episodes is None or self._episodes.folder != alone):
                    self._episodes = StepEpisodes(alone)
                page = page_html(self.folders, live=True, found=self._episodes)
                self._made = Made(version, page.encode())
                now = self.clock()
                self._rests_until = now + _REST * (now - began)
            return self._made


def _is_to_come(root: Path) -> bool:
    """Whether a folder is there, but no run yet is in it."""
    return root.is_dir() and not is_sweep(root) and not runs_in(root)


def version_of_all(folders: Sequence[Path]) -> str:
    """Return a text that is another one when a run, or a trial of a sweep, has gone on, begun or
    ended."""
    parts = [part for folder in folders for part in (folder, *_trials(folder))]
    versions = [(str(part), version_of(part, _FILES)) for part in parts]
    return hashlib.sha256(repr(versions).encode()).hexdigest()[:24]


def _trials(folder: Path) -> Iterator[Path]:
    if (folder / TRIALS).is_dir():
        yield from sorted((folder / TRIALS).iterdir())
