"""A batch of rollouts as labelled columns, and the advantages that are computed from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import Factory, field, frozen

from rlc.algo.errors import AlgorithmError
from rlc.algo.ragged import Bools, Floats, Ints, join, require_turns, split


@frozen(eq=False)
class Episodes:
    """The rewards of a batch of R rollouts with N turns altogether.

    Columns over N hold the turns of rollout 0, then of rollout 1, and so on;
    :meth:`from_rollouts` takes them rollout by rollout. Where several agents play one episode, the
    part of each is a rollout of its own, with its role as a label.
    """

    rewards_N: Floats
    tokens_N: Ints  # action tokens of each turn
    turns_R: Ints
    group_R: Ints  # label of the group a rollout belongs to
    env_R: Ints  # label of its environment
    role_R: Ints = field(  # label of its role; by default all have one
        default=Factory(lambda self: np.zeros(len(self.turns_R), np.int64), takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        labels = {"group": self.group_R, "environment": self.env_R, "role": self.role_R}
        for what, label_R in labels.items():
            if len(label_R) != len(self.turns_R):
                raise AlgorithmError(
                    f"{len(self.turns_R)} rollouts have {len(label_R)} {what} labels"
                )
        if not len(self.rewards_N) == len(self.tokens_N) == int(self.turns_R.sum()):
            raise AlgorithmError(
                f"{int(self.turns_R.sum())} turns have {len(self.rewards_N)} rewards "
                f"and {len(self.tokens_N)} token counts"
            )
        require_turns(self.turns_R)
        if (self.tokens_N < 0).any():
            raise AlgorithmError("a turn cannot have a negative number of action tokens")

    @classmethod
    def from_rollouts(
        cls,
        rewards_RT: Sequence[npt.ArrayLike],
        tokens_RT: Sequence[npt.ArrayLike],
        group_R: npt.ArrayLike,
        env_R: npt.ArrayLike,
        role_R: npt.ArrayLike | None = None,
    ) -> Episodes:
        """Rewards and action-token counts of each rollout's turns, and its labels."""
        rewards_N, turns_R = join(rewards_RT, np.float64)
        tokens_N, token_turns_R = join(tokens_RT, np.int64)
        if not np.array_equal(turns_R, token_turns_R):
            raise AlgorithmError("each turn needs one reward and one token count")
        given = [group_R, env_R] if role_R is None else [group_R, env_R, role_R]
        labels = [np.asarray(label_R, dtype=np.int64) for label_R in given]
        return cls(rewards_N, tokens_N, turns_R, *labels)


@frozen(eq=False)
class Advantages:
    """The advantage of every turn, the returns behind them, and which rollouts remain."""

    advantages_N: Floats  # zeros for rollouts that were dropped
    returns_V: Floats  # V = R for an episode scheme, N for a turn scheme
    kept_R: Bools
    turns_R: Ints

    def by_rollout(self) -> list[Floats]:
        """The advantages, one array a rollout, one value a turn."""
        return split(self.advantages_N, self.turns_R)
