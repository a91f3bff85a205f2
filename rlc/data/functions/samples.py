"""What functions of the user's own are given where they are tried: a batch, episodes, a history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlc.records import frozen

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_TASKS = 6  # of a generated history


@frozen
class PlayedEpisode:
    """An episode of a task: its ``replies`` in order, its reward, whether that solves the task, the
    ``components`` of the reward by name, and how many ``tokens`` were sampled."""

    task: int
    replies: tuple[str, ...]
    reward: float
    solved: bool
    components: Mapping[str, float]
    tokens: int

    @property
    def text(self) -> str:
        """The replies, one below the other."""
        return "\n".join(self.replies)


class _AnyComponent(dict[str, Any]):
    """Components whose names only a run can tell: each name that is asked for has this value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __missing__(self, name: str) -> Any:
        return self._value


@frozen
class SampleBatch:
    """A generated batch, the same each time: of each environment a task whose episodes have other
    rewards, and one where they are equal. ``components`` are None where only a run knows them;
    ``turns`` is the most that an episode has."""

    envs: tuple[str, ...] = ("env",)
    roles: tuple[str, ...] = ("",)
    components: tuple[str, ...] | None = None
    size: int = 4
    turns: int = 3

    def columns(self, step: int) -> dict[str, Any]:
        """Return what a function of advantages is given in a step, but for its state."""
        draws = np.random.default_rng(step)
        shape = (len(self.envs), 2, self.size, len(self.roles))
        env_R, task_R, _, role_R = (axis.ravel() for axis in np.indices(shape))
        turns_R = draws.integers(1, self.turns + 1, len(env_R))
        ends_R, total_R = np.cumsum(turns_R), draws.integers(0, 3, len(env_R)) / 2
        total_R[task_R == 1] = 0.0
        rewards_N, tokens_N = np.zeros(ends_R[-1]), draws.integers(1, 9, ends_R[-1])
        rewards_N[ends_R - 1] = total_R
        named = {name: rewards_N.copy() for name in self.components or ()}
        return {
            "rewards_N": rewards_N,
            "tokens_N": tokens_N,
            "episode_N": np.repeat(np.arange(len(env_R)), turns_R),
            "turns_R": turns_R,
            "total_R": total_R,
            "length_R": np.add.reduceat(tokens_N, ends_R - turns_R),
            "group_R": 2 * env_R + task_R,
            "env_R": np.array(self.envs)[env_R],
            "role_R": np.array(self.roles)[role_R],
            "truncated_R": draws.random(len(env_R)) < 0.25,
            "failed_R": np.zeros(len(env_R), np.bool_),
            "components": named if self.components is not None else _AnyComponent(rewards_N),
            "step": step,
        }

    def episodes(self, count: int) -> list[PlayedEpisode]:
        """Return so many episodes of a task; the last one solves it."""
        value_N = np.linspace(0.0, 1.0, count) if count > 1 else np.ones(1)
        found = []
        for at, value in enumerate(value_N.tolist()):
            named = _AnyComponent(value)
            parts = named if self.components is None else dict.fromkeys(self.components, value)
            reply = (f"Reply {at}.",)
            found.append(PlayedEpisode(0, reply, value, value == 1, parts, 8 * (at + 1)))
        return found

    def history(self, step: int) -> dict[str, Any]:
        """Return what a function that weighs tasks is given in a step: nothing in the first."""
        played_T = np.arange(_TASKS) * (step > 1)
        reward_T = np.where(played_T > 0, np.linspace(0.0, 1.0, _TASKS), np.nan)
        return {
            "played_T": played_T,
            "reward_T": reward_T,
            "solved_T": reward_T.copy(),
            "last_T": np.minimum(played_T, 1),
            "step": step,
        }
