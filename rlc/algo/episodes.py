"""A batch of rollouts as columns, and the returns of their rewards.

A column ``x_N`` holds the turns of rollout 0, then those of rollout 1, and so on; ``turns_R``
holds the lengths. A million rollouts are then one array instead of a million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

from rlc.algo.errors import AlgorithmError
from rlc.records import evolve, field, frozen

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def join(rows_RT: Sequence[npt.ArrayLike], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Ints]:
    """Flatten rows of any length; return the column ``x_N`` and the lengths ``turns_R``."""
    arrays = [np.asarray(row, dtype=dtype) for row in rows_RT]
    turns_R = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
    return (np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)), turns_R


def split(column_N: Floats, turns_R: Ints) -> list[Floats]:
    """Return the rows of a column, one view for each rollout."""
    ends = np.cumsum(turns_R).tolist()
    return [column_N[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def require_turns(turns_R: Ints) -> None:
    """Raise AlgorithmError for a rollout without a turn: it has no action to be credited."""
    if (turns_R < 1).any():
        raise AlgorithmError(
            f"rollout {int(np.argmin(turns_R))} has no turn; "
            "remove rollouts that failed before their first turn"
        )


def reward_to_go(gamma: float, rewards_N: Floats, turns_R: Ints) -> Floats:
    """Return ``G_t = r_t + gamma G_{t+1}`` of every turn, from the last back, all rollouts at once.

    The rounding error of each addition is carried along (Knuth's two-sum), so that episodes of
    equal worth get equal returns however the reward was spread over their turns: a group whose
    returns differed in the last bit only would pass for one with something to learn.
    """
    to_go_N = rewards_N.copy()
    longest = int(turns_R.max(initial=0))
    if longest == 1:
        return to_go_N
    ends_R = np.cumsum(turns_R)
    longest_first_R = np.argsort(longest - turns_R, kind="stable")
    alive_T = len(turns_R) - np.cumsum(np.bincount(turns_R, minlength=longest + 1))
    following_A = np.zeros(len(turns_R))
    error_A = np.zeros(len(turns_R))
    for back in range(longest):
        alive_R = longest_first_R[: alive_T[back]]
        at_A = ends_R[alive_R] - 1 - back
        reward_A, later_A = rewards_N[at_A], gamma * following_A[: len(alive_R)]
        following_A = reward_A + later_A
        rounded_A = following_A - reward_A
        lost_A = (reward_A - (following_A - rounded_A)) + (later_A - rounded_A)
        error_A = lost_A + gamma * error_A[: len(alive_R)]
        to_go_N[at_A] = following_A + error_A
    return to_go_N


def renewed(average: float, values: Sequence[float], decay: float) -> float:
    """Return a moving average after n more values: ``b <- d^n b + (1 - d^n) mean(values)``.

    One by one, as the paper takes them, ``b <- d b + (1 - d) x`` depends on their order; over all
    orders its mean is this, in which no value has more weight than another.
    """
    kept = decay ** len(values)
    return kept * average + (1 - kept) * (fsum(values) / len(values))


# The components of a rollout's reward, by name: the weight of each, and its value in each turn.
Parts = Mapping[str, tuple[float, Sequence[float]]]


@frozen(eq=False)
class Components:
    """The K components of the rewards of a batch. Those that a rollout does not have are NaN."""

    values_NK: Floats
    weight_NK: Floats
    names: tuple[str, ...] = ("",)

    @classmethod
    def of_one(cls, rewards_N: Floats) -> Components:
        """Return the components of rewards that are one number each."""
        return cls(rewards_N[:, None], np.ones((len(rewards_N), 1)))

    @classmethod
    def from_rollouts(cls, parts_R: Sequence[Parts], turns_R: Ints) -> Components:
        names = sorted({name for parts in parts_R for name in parts})
        values_NK = np.full((int(turns_R.sum()), len(names)), np.nan)
        weight_NK = np.zeros_like(values_NK)
        start = 0
        for parts, turns in zip(parts_R, turns_R.tolist(), strict=True):
            for name, (weight, value_T) in parts.items():
                values_NK[start : start + turns, names.index(name)] = value_T
                weight_NK[start : start + turns, names.index(name)] = weight
            start += turns
        return cls(values_NK, weight_NK, tuple(names))


@frozen(eq=False)
class Episodes:
    """The rewards of a batch of R rollouts with N turns altogether.

    Columns over N hold the turns of rollout 0, then of rollout 1, and so on;
    :meth:`from_rollouts` takes them rollout by rollout. Where several agents play one episode, the
    part of each is a rollout of its own, with its role as a label. ``components`` are those of the
    rewards; None: the reward is one number. ``running`` has the moving averages that the scheme
    reads, a value for each rollout, by the positions of their nodes; others are 0. ``roles`` and
    ``envs`` are what the labels from 0 on stand for. ``of_tokens`` has what the scheme reads of the
    A action tokens of all turns, in order, by the names of its inputs.
    """

    rewards_N: Floats
    tokens_N: Ints  # action tokens of each turn
    turns_R: Ints
    group_R: Ints  # label of the group a rollout belongs to
    env_R: Ints  # label of its environment
    role_R: Ints = field()  # label of its role; by default all have one
    components: Components | None = None
    truncated_R: Bools = field()
    failed_R: Bools = field()
    running: Mapping[int, Floats] = field(factory=dict)
    step: int = 1
    roles: tuple[str, ...] = ()
    envs: tuple[str, ...] = ()
    of_tokens: Mapping[str, Floats] = field(factory=dict)

    @property
    def lengths(self) -> Ints:
        """The action tokens of each rollout."""
        counted = np.concatenate(([0], np.cumsum(self.tokens_N)))
        ends_R = np.cumsum(self.turns_R)
        length_R: Ints = counted[ends_R] - counted[ends_R - self.turns_R]
        return length_R

    @role_R.default
    def _one_role(self) -> Ints:
        return np.zeros(len(self.turns_R), np.int64)

    @truncated_R.default
    @failed_R.default
    def _none(self) -> Bools:
        return np.zeros(len(self.turns_R), np.bool_)

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
        for name, column_A in self.of_tokens.items():
            if len(column_A) != int(self.tokens_N.sum()):
                raise AlgorithmError(
                    f"{int(self.tokens_N.sum())} action tokens have {len(column_A)} of `{name}`"
                )

    def require_finite(self) -> None:
        """Raise AlgorithmError for a reward that is not a finite number, with its place, and for a
        value of a token."""
        finite_N = np.isfinite(self.rewards_N)
        if not finite_N.all():
            at = int(np.argmin(finite_N))
            ends_R = np.cumsum(self.turns_R)
            rollout = int(np.searchsorted(ends_R, at, side="right"))
            turn = at - int(ends_R[rollout] - self.turns_R[rollout])
            raise AlgorithmError(
                f"the reward of rollout {rollout}, turn {turn} is {self.rewards_N[at]}; "
                "every reward must be a finite number"
            )
        for name, column_A in self.of_tokens.items():
            if not np.isfinite(column_A).all():
                at = int(np.argmin(np.isfinite(column_A)))
                rollout = int(np.searchsorted(np.cumsum(self.lengths), at, side="right"))
                raise AlgorithmError(f"`{name}` of a token of rollout {rollout} is {column_A[at]}")

    def select(self, keep_R: Bools) -> Episodes:
        """Return the rollouts for which ``keep_R`` holds."""
        keep_N, parts = np.repeat(keep_R, self.turns_R), self.components
        if parts is not None:
            values_NK, weight_NK = parts.values_NK[keep_N], parts.weight_NK[keep_N]
            parts = evolve(parts, values_NK=values_NK, weight_NK=weight_NK)
        of_rollouts = ("turns_R", "group_R", "env_R", "role_R", "truncated_R", "failed_R")
        return evolve(
            self,
            rewards_N=self.rewards_N[keep_N],
            tokens_N=self.tokens_N[keep_N],
            components=parts,
            running={at: value_R[keep_R] for at, value_R in self.running.items()},
            of_tokens={
                name: column_A[np.repeat(keep_N, self.tokens_N)]
                for name, column_A in self.of_tokens.items()
            },
            **{name: getattr(self, name)[keep_R] for name in of_rollouts},
        )

    def columns(self) -> dict[str, Any]:
        """Return what a function of the user's own is given of a batch: copies, by name."""
        ends_R, parts = np.cumsum(self.turns_R), self.components
        begin_R = ends_R - self.turns_R
        arrays = ("rewards_N", "tokens_N", "turns_R", "group_R", "truncated_R", "failed_R")
        named = [] if parts is None else [*zip(parts.names, parts.values_NK.T, strict=True)]
        return {
            **{name: getattr(self, name).copy() for name in arrays},
            "episode_N": np.repeat(np.arange(len(ends_R)), self.turns_R),
            "total_R": reward_to_go(1.0, self.rewards_N, self.turns_R)[begin_R],
            "length_R": self.lengths,
            "env_R": np.array(self.names("env")),
            "role_R": np.array(self.names("role")),
            "components": {name: value_N.copy() for name, value_N in named if name},
            "step": self.step,
        }

    def names(self, label: str) -> list[str]:
        """Return the name of each rollout's ``role`` or ``env``."""
        names = self.roles if label == "role" else self.envs
        return [names[at] for at in getattr(self, f"{label}_R").tolist()]

    def scope_name(self, scope: str, at: int) -> str:
        """Return the name, in a message, of the scope of rollout ``at``."""
        if scope == "batch":
            return "the batch"
        parts = {"role": ("role", "group"), "batch_role": ("role",)}.get(scope, (scope,))
        return " of ".join(f"{part} {int(getattr(self, f'{part}_R')[at])}" for part in parts)

    def scope_labels(self, scope: str) -> Ints:
        """Return a label for each rollout, the same for those that are compared in a scope."""
        match scope:
            case "batch":
                return np.zeros(len(self.turns_R), np.int64)
            case "role":
                _, role_R = np.unique(self.role_R, return_inverse=True)
                _, group_R = np.unique(self.group_R, return_inverse=True)
                return np.asarray(group_R * (role_R.max(initial=0) + 1) + role_R, np.int64)
            case "batch_role":
                return self.role_R
        labels: Ints = getattr(self, f"{scope}_R")
        return labels

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
        """Make a batch of the rewards and action-token counts of each rollout's turns, its labels,
        and the components of its rewards."""
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
    """The advantage of every turn, and which rollouts remain. ``observed`` has what the moving
    averages of the scheme are of, by the positions of their nodes: a value for each rollout that is
    kept, or for each of its turns. ``of_tokens`` has those of each rollout's tokens where these may
    differ; the advantage of a turn is then their mean."""

    advantages_N: Floats  # zeros for rollouts that were dropped
    kept_R: Bools
    turns_R: Ints
    observed: Mapping[int, Floats] = field(factory=dict)
    of_tokens: Sequence[Floats] | None = None

    def by_rollout(self) -> list[Floats]:
        """Return the advantages: an array for each rollout, with a value for each turn."""
        return split(self.advantages_N, self.turns_R)
