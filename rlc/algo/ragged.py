"""Ragged columns: one flat array for all turns, and how many turns each rollout has; and the
returns of such columns of rewards.

A column ``x_N`` holds the turns of rollout 0, then those of rollout 1, and so on; ``turns_R``
holds the lengths. A million rollouts are then one array instead of a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlc.algo.errors import AlgorithmError
from rlc.algo.scheme import Returns

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def join(rows_RT: Sequence[npt.ArrayLike], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Ints]:
    """Flatten rows of any length: the column ``x_N`` and the lengths ``turns_R``."""
    arrays = [np.asarray(row, dtype=dtype) for row in rows_RT]
    turns_R = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
    return (np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)), turns_R


def split(column_N: Floats, turns_R: Ints) -> list[Floats]:
    """The rows of a column, one view a rollout."""
    ends = np.cumsum(turns_R).tolist()
    return [column_N[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def require_turns(turns_R: Ints) -> None:
    """Refuse a rollout without a turn: it has no action that could be credited."""
    if (turns_R < 1).any():
        raise AlgorithmError(
            f"rollout {int(np.argmin(turns_R))} has no turn; "
            "remove rollouts that failed before their first turn"
        )


def require_finite(column_N: Floats, turns_R: Ints, what: str) -> None:
    """Refuse NaN and infinity, naming the first rollout and turn that hold one."""
    finite_N = np.isfinite(column_N)
    if finite_N.all():
        return
    at = int(np.argmin(finite_N))
    ends_R = np.cumsum(turns_R)
    rollout = int(np.searchsorted(ends_R, at, side="right"))
    turn = at - int(ends_R[rollout] - turns_R[rollout])
    raise AlgorithmError(
        f"the {what} of rollout {rollout}, turn {turn} is {column_N[at]}; "
        f"every {what} must be a finite number"
    )


def compute_returns(returns: Returns, rewards_N: Floats, turns_R: Ints) -> Floats:
    """Return the returns of all rollouts, in one column.

    Args:
        returns: the unit and the discount ``gamma``. ``turn`` gives ``G_t = r_t + gamma G_{t+1}``
            of every turn, shape (N,). ``episode`` gives ``G_0``, shape (R,): the sum of the rewards
            at ``gamma = 1``, the discounted sum otherwise.
        rewards_N: the rewards of all turns, rollout by rollout.
        turns_R: the number of turns of each rollout.

    Raises:
        AlgorithmError: a reward that is not finite, or a rollout without turns.
    """
    require_turns(turns_R)
    require_finite(rewards_N, turns_R, "reward")
    to_go_N = reward_to_go(returns.gamma, rewards_N, turns_R)
    if returns.unit == "turn":
        return to_go_N
    return np.take(to_go_N, np.cumsum(turns_R) - turns_R)


def reward_to_go(gamma: float, rewards_N: Floats, turns_R: Ints) -> Floats:
    """``G_t = r_t + gamma G_{t+1}`` of every turn, from the last back, all rollouts at once.

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
