"""A batch of rollouts as labelled columns, and the advantages that are computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rlc.algo.errors import AlgorithmError
from rlc.algo.ragged import Bools, Floats, Ints, join, require_turns, split
from rlc.records import evolve, field, frozen

# What a rollout's reward is made of, by name: the weight of each component, and its value in each
# turn.
Parts = Mapping[str, tuple[float, Sequence[float]]]


@frozen(eq=False)
class Components:
    """The K components of the rewards of a batch. Those that a rollout does not have are NaN."""

    values_NK: Floats
    weight_NK: Floats

    @classmethod
    def from_rollouts(cls, parts_R: Sequence[Parts], turns_R: Ints) -> Components:
        """The components of rollouts with so many turns."""
        names = sorted({name for parts in parts_R for name in parts})
        values_NK = np.full((int(turns_R.sum()), len(names)), np.nan)
        weight_NK = np.zeros_like(values_NK)
        start = 0
        for parts, turns in zip(parts_R, turns_R.tolist(), strict=True):
            for name, (weight, value_T) in parts.items():
                values_NK[start : start + turns, names.index(name)] = value_T
                weight_NK[start : start + turns, names.index(name)] = weight
            start += turns
        return cls(values_NK, weight_NK)


@frozen(eq=False)
class Episodes:
    """The rewards of a batch of R rollouts with N turns altogether.

    Columns over N hold the turns of rollout 0, then of rollout 1, and so on;
    :meth:`from_rollouts` takes them rollout by rollout. Where several agents play one episode, the
    part of each is a rollout of its own, with its role as a label. ``components`` are those of the
    rewards; None: the reward is one number. ``running_R`` is what a running baseline subtracts from
    the returns of each rollout; None: 0.
    """

    rewards_N: Floats
    tokens_N: Ints  # action tokens of each turn
    turns_R: Ints
    group_R: Ints  # label of the group a rollout belongs to
    env_R: Ints  # label of its environment
    role_R: Ints = field()  # label of its role; by default all have one
    components: Components | None = None
    running_R: Floats | None = None

    @role_R.default
    def _one_role(self) -> Ints:
        return np.zeros(len(self.turns_R), np.int64)

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
        parts_R: Sequence[Parts] | None = None,
    ) -> Episodes:
        """Rewards and action-token counts of each rollout's turns, its labels, and what its rewards
        are made of."""
        rewards_N, turns_R = join(rewards_RT, np.float64)
        tokens_N, token_turns_R = join(tokens_RT, np.int64)
        if not np.array_equal(turns_R, token_turns_R):
            raise AlgorithmError("each turn needs one reward and one token count")
        given = [group_R, env_R] if role_R is None else [group_R, env_R, role_R]
        labels = [np.asarray(label_R, dtype=np.int64) for label_R in given]
        made = cls(rewards_N, tokens_N, turns_R, *labels)  # type: ignore[arg-type]
        if parts_R is None:
            return made
        return evolve(made, components=Components.from_rollouts(parts_R, turns_R))


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
