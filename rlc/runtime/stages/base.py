"""What both kinds of training stage offer to the loop that drives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from attrs import frozen

from rlc.runtime.graph import StepFunction, StepOutcome
from rlc.runtime.journal.checkpoints import PendingCheckpoint
from rlc.runtime.records import Usage
from rlc.runtime.stages.weights import StageWeights


@frozen(eq=False)
class StepReport:
    """The results of a finished step, as the journal and the files of the run take them."""

    metrics: dict[str, Any]
    rollouts: list[dict[str, Any]]
    cursor: dict[str, Any]
    checkpoint: PendingCheckpoint | None


class Stage(Protocol):
    """A training stage in progress.

    ``usage`` counts the tokens of each running step as responses arrive, ``reference_usage`` the
    tokens that a reference model reads.
    """

    weights: StageWeights
    usage: dict[int, Usage]
    reference_usage: dict[int, Usage]

    def functions(self) -> Mapping[str, StepFunction]:
        """Return the function of each kind of node in the step graph."""

    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Return the results of a step and forget what was kept for it."""

    async def close(self) -> None:
        """Release what the stage holds besides its weights."""
