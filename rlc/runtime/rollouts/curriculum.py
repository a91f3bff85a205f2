"""Which tasks are worth playing: ``curriculum()`` in a recipe.

The tasks of an environment are visited in one order, round after round. A task that was always
solved when it was last played, or never, is skipped, except for a share of visits that finds out
whether this has changed. A task that was never played is always played.

All choices follow from the seed and from finished steps: the shares of solved rollouts are
journalled with the cursor of their step, and a resumed run reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from statistics import fmean

from attrs import define, field

from rlc.envs import JUDGE
from rlc.runtime.records import Rollout
from rlc.seeds import derive_seed


@define
class Curriculum:
    """The tasks 0 … ``count - 1`` of one environment, and how well each was last solved.

    A task that a share of at most ``hopeless`` or at least ``solved`` of its rollouts solved is
    skipped; ``explore`` is the probability that it is played nevertheless. What a step teaches
    counts from :meth:`know` on.
    """

    count: int
    hopeless: float
    solved: float
    explore: float
    seed: int
    _shares: dict[int, float] = field(factory=dict, init=False)
    _pending: dict[int, Mapping[int, float]] = field(factory=dict, init=False)

    def learn(self, step: int, solved: Mapping[int, float]) -> None:
        """Take the shares that a step measured, by the number of the task."""
        self._pending[step] = solved

    def know(self, step: int) -> None:
        """Use what was learned up to the end of ``step`` from now on."""
        for earlier in sorted(known for known in self._pending if known <= step):
            self._shares.update(self._pending.pop(earlier))

    def next(self, position: int) -> int:
        """Return the first position from ``position`` on whose task is played.

        The task is ``position % count``. If a whole round has none, it is ``position`` itself.
        """
        for at in range(position, position + self.count):
            share = self._shares.get(at % self.count)
            if share is None or self.hopeless < share < self.solved:
                return at
            if Random(derive_seed(self.seed, "curriculum", at)).random() < self.explore:
                return at
        return position

    def metrics(self) -> dict[str, float]:
        """Return the shares of all tasks that were played, and that are hopeless or solved."""
        shares = self._shares.values()
        return {
            "known": len(shares) / self.count,
            "hopeless": sum(share <= self.hopeless for share in shares) / self.count,
            "solved": sum(self.hopeless < share >= self.solved for share in shares) / self.count,
        }


def solved_share(rollouts: Iterable[Rollout]) -> float | None:
    """Return the share of a group that solved its task; None if all failed.

    Failures do not count. If the task is played in roles, the judge's pick decides.
    """
    deciding = [r for r in rollouts if r.role in ("", JUDGE) and r.error is None]
    return fmean(r.solved for r in deciding) if deciding else None
