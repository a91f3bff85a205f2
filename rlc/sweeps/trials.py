"""The trials of a sweep, as its journal has them."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from rlc.plan import Trial

TrialState = Literal[
    "waiting", "running", "finished", "pruned", "decided", "budget", "interrupted", "failed"
]
# The ends of trials that are not run again; decided: no claim needs it, as long as that is so.
COMPLETED: tuple[TrialState, ...] = ("finished", "pruned", "decided")


@frozen
class TrialRecord:
    """The state of a trial, its metric once it has finished, or the ``cause`` of another end."""

    trial: Trial
    state: TrialState
    cause: str
    value: float | None

    @property
    def ended(self) -> bool:
        return self.state in (*COMPLETED, "failed")
