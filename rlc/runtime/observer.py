"""What a run reports while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlc.plan import Evaluation, Plan, Training

if TYPE_CHECKING:
    from rlc.runtime.records import Rollout, TrainedSample


class Observer:
    """Base class whose methods do nothing: override those of interest.

    They are called on the thread of the run and must return quickly.
    """

    def started(self, plan: Plan, folder: Path) -> None:
        """The run has begun, or has been resumed."""

    def stage_started(self, stage: Training, done: int, values: Sequence[float]) -> None:
        """A stage begins; ``done`` of its steps were run before a resume, with these values."""

    def waiting(self, what: str) -> None:
        """The run waits for something before it can go on, such as a model; for no more if empty.

        A step or an evaluation that is done ends it too.
        """

    def progress(self, done: int, planned: int) -> None:
        """So many groups of the running step have been played."""

    def played(self, members: Sequence[Rollout]) -> None:
        """A task has been played in a step or an evaluation, by these members of its group."""

    def learnt(self, lesson: TrainedSample) -> None:
        """A step of a stage that learns from data is done; this is a row that it learnt from."""

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step of the stage that started last is done and journalled."""

    def evaluated(self, plan: Evaluation, step: int, metrics: Mapping[str, Any]) -> None:
        """An evaluation is done and journalled."""

    def note(self, text: str) -> None:
        """Something happened that is worth a line of its own."""

    def warning(self, text: str) -> None:
        """Something is not as one would expect; a note, unless this is overridden."""
        self.note(text)

    def close(self) -> None:
        """The run is over."""
