"""Which tasks are worth playing: ``curriculum()`` in a recipe.

The tasks of an environment are gone through in one order, round after round. One that was always
solved when it was last played, or never, is passed over, but for a share that is played all the
same, so that what has changed is found out. One that was never played is always played.

Everything follows from the seed and from what is known of finished steps: the shares of solved
rollouts go into the journal with the cursor of their step, and a resumed run reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from statistics import fmean

from attrs import define, field

from rlc.envs.base import SOLVED
from rlc.envs.judges.solver_judge import JUDGE
from rlc.envs.seeds import derive_seed
from rlc.runtime.records import Rollout


@define
class Curriculum:
    """The tasks 0 … ``count - 1`` of one environment, and the share of rollouts that solved each
    when it was last played.

    A share of at most ``hopeless``, and of at least ``solved``, is passed over. ``explore``: how
    often it is played all the same. What is learned of a step counts from :meth:`know` on.
    """

    count: int
    hopeless: float
    solved: float
    explore: float
    seed: int
    _shares: dict[int, float] = field(factory=dict, init=False)
    _pending: dict[int, Mapping[int, float]] = field(factory=dict, init=False)

    def learn(self, step: int, solved: Mapping[int, float]) -> None:
        """The shares that a step measured, by the number of the task."""
        self._pending[step] = solved

    def know(self, step: int) -> None:
        """From now on what was learned up to the end of ``step`` counts."""
        for earlier in sorted(known for known in self._pending if known <= step):
            self._shares.update(self._pending.pop(earlier))

    def next(self, position: int) -> int:
        """The first position from ``position`` on whose task is played; the task is
        ``position % count``. After a whole round in vain it is ``position`` itself."""
        for at in range(position, position + self.count):
            if self._teaches(at % self.count) or self._explores(at):
                return at
        return position

    def metrics(self) -> dict[str, float]:
        """Shares of all tasks: those played so far, and of these the hopeless and the solved."""
        shares = self._shares.values()
        return {
            "known": len(shares) / self.count,
            "hopeless": sum(share <= self.hopeless for share in shares) / self.count,
            "solved": sum(self.hopeless < share >= self.solved for share in shares) / self.count,
        }

    def _teaches(self, task: int) -> bool:
        share = self._shares.get(task)
        return share is None or self.hopeless < share < self.solved

    def _explores(self, position: int) -> bool:
        seed = derive_seed(self.seed, "curriculum", position)
        return Random(seed).random() < self.explore


def solved_share(rollouts: Iterable[Rollout]) -> float | None:
    """The share of a group that solved its task, failures left out; None where all failed. Where
    the task is played in roles, the judge's pick decides."""
    deciding = [r for r in rollouts if r.role in ("", JUDGE) and r.error is None]
    return fmean(r.reward >= SOLVED for r in deciding) if deciding else None
