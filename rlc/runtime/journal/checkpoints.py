"""What a stage saves so that a run can go on: its state after each step, journalled once the
service has it, and let go when newer ones are safe.

A state may be on its way while the next step samples, but is journalled before that step changes
the weights. So a process that dies loses the step that it was in, and with it at most the one
whose state was still on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from attrs import define, field, frozen

from rlc.plan.records import SavePlan, SftPlan, TrainPlan
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.metrics import score
from rlc.service.errors import CheckpointError, ServiceError
from rlc.service.interface import ServiceClient

ROLLING_TTL = 7 * 24 * 3600  # seconds that a service keeps the newest state of a run that ended
_GRACE = 5.0  # seconds that a failing run waits for a state on its way


@frozen(eq=False)
class PendingCheckpoint:
    """A state that the service was asked for. One that is not ``lasting`` is deleted as soon as
    a newer one is safe."""

    path: Awaitable[str]
    lasting: bool


def max_lag(stage: TrainPlan | SftPlan) -> int:
    """Return how many steps the weights of a rollout may lag behind."""
    return stage.overlap.max_staleness if isinstance(stage, TrainPlan) else 0


def is_due(stage: TrainPlan | SftPlan, step: int) -> bool:
    """Whether the plan has a lasting checkpoint after ``step``."""
    every = stage.save.every
    return step == stage.steps or (every is not None and step % every == 0)


def kept_states(
    save: SavePlan, saved: Sequence[int], due: Sequence[int], best: int | None
) -> set[int]:
    """Which states stay, by their steps in order: the newest ``keep`` of those that the plan asks
    for (``due``) and the best of them, and the newest of all."""
    return {*saved[-(save.rolling or 1) :], *due[-save.keep :], *([] if best is None else [best])}


def kept_snapshots(
    snapshots: Collection[int], states: Collection[int], done: int, slack: int
) -> set[int]:
    """Which weights for sampling stay: those that steps after ``done`` sample from, and those
    that they would if the run went back to one of ``states``."""
    return {
        step
        for step in snapshots
        if step >= done - slack or any(state - slack <= step < state for state in states)
    }


@define(eq=False)
class CheckpointKeeper:
    """The saved states of one stage."""

    stage: TrainPlan | SftPlan
    journal: Journal
    service: ServiceClient
    note: Callable[[str], None]
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def keep(self, step: int, saving: PendingCheckpoint | None) -> None:
        """A step is journalled: journal its state when the service has it, and tidy up."""
        self._task = asyncio.create_task(self._keep(step, saving))

    async def settle(self) -> None:
        """Return once the state after the last step is safe. Raises what its saving raised."""
        if self._task is not None:
            await self._task

    async def abandon(self) -> None:
        """Of a run that fails: give what is on its way a moment, and raise nothing."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_GRACE)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self, step: int, saving: PendingCheckpoint | None) -> None:
        if saving is not None:
            self.journal.add_checkpoint(self.stage.name, step, await saving.path)
        await self._retire(step)

    async def _retire(self, done: int) -> None:
        """Delete what no longer serves. What cannot be deleted now is tried again after the next
        step: no reason to end a run."""
        name, journal = self.stage.name, self.journal
        saved = {stored.step: stored.path for stored in journal.checkpoints(name)}
        due = [step for step in saved if is_due(self.stage, step)]
        best = self._best(due) if self.stage.save.best and due else None
        keep = kept_states(self.stage.save, list(saved), due, best)
        for step, path in saved.items():
            if step not in keep and await self._delete(path):
                journal.drop_checkpoint(name, step)
        snapshots = {stored.step: stored.path for stored in journal.snapshots(name)}
        stay = kept_snapshots(snapshots, keep, done, max_lag(self.stage))
        for step, path in snapshots.items():
            if step not in stay and await self._delete(path):
                journal.drop_snapshot(name, step)

    async def _delete(self, path: str) -> bool:
        try:
            await self.service.delete_checkpoint(path)
        except CheckpointError:
            return True  # a process that was killed had deleted it already
        except ServiceError as error:
            self.note(f"{path} is not deleted yet: {error}")
            return False
        return True

    def _best(self, steps: Sequence[int]) -> int:
        """The step with the best score; of equals the first."""
        done = [self.journal.step(self.stage.name, step) for step in steps]
        return max(filter(None, done), key=lambda stored: score(stored.metrics)).step
