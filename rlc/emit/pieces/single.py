"""Tasks of one environment"""

from __future__ import annotations

from collections.abc import Sequence

from rlc.emit.pieces.records import Env


def next_tasks(envs: Sequence[Env], cursor: dict[str, int], count: int) -> list[tuple[Env, int]]:
    """The next tasks of an environment, by their numbers."""
    (env,) = envs
    cursor[env.name] += count
    return [(env, cursor[env.name] - left) for left in range(count, 0, -1)]
