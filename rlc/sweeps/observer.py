"""What a sweep reports while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlc.plan import SweepPlan, Trial
from rlc.sweeps.journal import TrialRecord


class SweepObserver:
    """Base class whose methods do nothing: override those of interest.

    They are called on the threads of the trials, one at a time, and must return quickly.
    """

    def started(self, plan: SweepPlan, size: int, folder: Path) -> None:
        """The sweep has begun, or has been resumed; it is to have so many trials."""

    def trial(self, record: TrialRecord) -> None:
        """A trial is waiting, has begun, or has ended."""

    def step(
        self, trial: Trial, stage: str, step: int, of: int, metrics: Mapping[str, Any]
    ) -> None:
        """A step of a trial is done; its stage has ``of`` steps."""

    def measured(self, trial: Trial, step: int, value: float) -> None:
        """A trial's metric after a step."""

    def spent(self, usd: float) -> None:
        """All trials together have cost so much."""

    def note(self, text: str) -> None:
        """Something happened that is worth a line of its own."""

    def close(self) -> None:
        """The sweep is over."""
