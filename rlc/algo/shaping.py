"""Rewards that compare an episode with its group, computed for all members at once.

What holds for statistics of advantages holds for these: the spread of equals is 0, what is divided
by such a spread, or is itself 0, is 0, and no bit depends on the order of the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlc.algo.advantages import BatchEvaluation
from rlc.algo.episodes import Episodes, Floats
from rlc.algo.expressions.interpret import finite_reward, require_inputs
from rlc.algo.expressions.program import Program


class _GroupEvaluation(BatchEvaluation):
    """Computes programs on the members of one group, from what each reads."""

    def __init__(self, read: Sequence[Mapping[str, float]], roles: Sequence[str]) -> None:
        labels = list(dict.fromkeys(roles))
        role_R = np.array([labels.index(role) for role in roles], np.int64)
        none_R = np.zeros(len(read), np.int64)
        super().__init__(
            Episodes(np.zeros(len(read)), none_R, np.ones_like(none_R), none_R, none_R, role_R)
        )
        self._read = read

    def _input(self, name: str) -> Floats:
        return np.array([one[name] for one in self._read], np.float64)


def shaped_rewards(
    program: Program, members: Sequence[Mapping[str, float]], roles: Sequence[str] = ()
) -> list[float]:
    """Return the rewards that a program makes of the members of a group, from the inputs that each
    has. By default all have one role.

    Raise AlgorithmError if a component that it reads is missing, or a result is not finite.
    """
    if not members:
        return []
    read = [require_inputs(program, one) for one in members]
    with np.errstate(all="ignore"):  # what is not finite is refused
        rewards_R = _GroupEvaluation(read, roles or [""] * len(read)).by_episode(program)
    return [finite_reward(*pair) for pair in zip(rewards_R.tolist(), read, strict=True)]
