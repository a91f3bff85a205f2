"""The saved states of a stage, from which a run is resumed.

The state after each step is journalled once the service has it, and deleted when newer ones are
safe. It may still be on its way while the next step samples, but is journalled before that step
changes the weights. So a process that dies loses its running step and at most the one before,
whose state was still on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from attrs import define, field, frozen

from rlc.data import best_key
from rlc.plan import SavePlan, Training
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.metrics import score
from rlc.service import CheckpointError, ServiceClient, ServiceError

ROLLING_TTL = 7 * 24 * 3600  # seconds that a service keeps the newest state of a run that ended
_GRACE = 5.0  # seconds that a failing run waits for a state on its way


@frozen(eq=False)
class PendingCheckpoint:
    """A state that is being saved; one that is not ``lasting`` only until a newer one is safe."""

    path: Awaitable[str]
    lasting: bool


def max_lag(stage: Training) -> int:
    """Return how many steps the weights of a rollout may lag behind."""
    return 0 if stage.rollouts is None else stage.rollouts.overlap.max_staleness


def is_due(stage: Training, step: int) -> bool:
    """Whether the plan has a lasting checkpoint after ``step``."""
    every = stage.save.every
    return step == stage.steps or (every is not None and step % every == 0)


def kept_states(
    save: SavePlan, saved: Sequence[int], due: Sequence[int], best: int | None
) -> set[int]:
    """Return the steps whose states are kept.

    These are the ``rolling`` newest of all, the ``keep`` newest of those that are ``due``, and the
    best one. ``saved`` and ``due`` are in order.
    """
    return {*saved[-(save.rolling or 1) :], *due[-save.keep :], *([] if best is None else [best])}


def kept_snapshots(
    snapshots: Collection[int],
    states: Collection[int],
    done: int,
    lag: int,
    pasts: Collection[int] = (),
) -> set[int]:
    """Return the steps whose weights for sampling are kept.

    Steps after ``done`` sample from them, or would if the run returned to one of ``states``; or
    play against them, as the ``pasts`` that are renewed after so many steps.
    """
    opponents = {
        past_step(step, every)
        for every in pasts
        for last in (done, *states)
        for step in range(max(0, last - lag), last + 1)
    }
    return (opponents & {*snapshots}) | {
        step
        for step in snapshots
        if step >= done - lag or any(state - lag <= step < state for state in states)
    }


def past_step(step: int, every: int) -> int:
    """Return the last step, no later than ``step``, after which the past of a stage is renewed."""
    return step // every * every


def pasts_of(stage: Training) -> tuple[int, ...]:
    """Return after how many steps each past of a stage is renewed that is an opponent in it."""
    envs = () if stage.rollouts is None else stage.rollouts.envs
    pasts = (env.play.past.every for env in envs if env.play is not None and env.play.past)
    return tuple(sorted(set(pasts)))


@define(eq=False)
class CheckpointKeeper:
    """Journals the states of one stage and deletes those that are no longer needed."""

    stage: Training
    journal: Journal
    service: ServiceClient
    note: Callable[[str], None]
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def keep(self, step: int, pending: PendingCheckpoint | None) -> None:
        """Start to journal the state after a step that is done, once the service has it."""

        async def keep() -> None:
            if pending is not None:
                self.journal.add_checkpoint(self.stage.name, step, await pending.path)
            await self._delete_unneeded(step)

        self._task = asyncio.create_task(keep())

    async def settle(self) -> None:
        """Wait until the state after the last step is safe; raise what its saving raised."""
        if self._task is not None:
            await self._task

    async def abandon(self) -> None:
        """Give a failing run's last state a moment to arrive, and raise nothing."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_GRACE)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _delete_unneeded(self, done: int) -> None:
        """Delete old states and snapshots; what cannot be deleted is tried again after a step."""
        name, journal, save = self.stage.name, self.journal, self.stage.save
        saved = journal.checkpoints(name)
        due, best = [step for step in saved if is_due(self.stage, step)], None
        if save.best and due:  # of equals the first
            steps = filter(None, (journal.step(name, step) for step in due))
            best = max(steps, key=lambda stored: score(self.stage, stored.metrics)).step
            journal.set_meta(**{best_key(name): str(best)})
        states = kept_states(save, list(saved), due, best)
        for step, path in saved.items():
            if step not in states and await self._delete(path):
                journal.drop_checkpoint(name, step)
        snapshots = journal.snapshots(name)
        kept = kept_snapshots(snapshots, states, done, max_lag(self.stage), pasts_of(self.stage))
        for step, path in snapshots.items():
            if step not in kept and await self._delete(path):
                journal.drop_snapshot(name, step)

    async def _delete(self, path: str) -> bool:
        try:
            await self.service.delete_checkpoint(path)
        except CheckpointError:
            return True  # deleted already, by a process that was killed before it said so
        except ServiceError as error:
            self.note(f"{path} is not deleted yet: {error}")
            return False
        return True
