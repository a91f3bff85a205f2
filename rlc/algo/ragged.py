"""Ragged columns: one flat array for all turns, and how many turns each rollout has.

A column ``x_N`` holds the turns of rollout 0, then those of rollout 1, and so on; ``turns_R``
holds the lengths. A million rollouts are then one array instead of a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlc.algo.errors import AlgorithmError

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
