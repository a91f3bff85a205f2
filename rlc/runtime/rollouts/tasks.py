"""Which environment the next task comes from."""

from __future__ import annotations

from collections.abc import Sequence


def draw(weights: dict[str, float], cursor: dict[str, int], count: int) -> list[tuple[str, int]]:
    """The next ``count`` tasks as (environment, task number), advancing ``cursor`` in place.

    After any number of draws each environment's share is within one task of its weight: the one
    furthest behind its share is next, ties in the order of the recipe. The sequence depends only
    on the weights and the cursor, so a resumed run goes on where it stopped.
    """
    total = sum(weights.values())
    drawn = []
    for _ in range(count):
        after = sum(cursor[env] for env in weights) + 1
        shortfalls = {env: w / total * after - cursor[env] for env, w in weights.items()}
        env = max(shortfalls, key=lambda name: shortfalls[name])
        drawn.append((env, cursor[env]))
        cursor[env] += 1
    return drawn


def new_cursor(envs: Sequence[str]) -> dict[str, int]:
    """No task drawn yet."""
    return dict.fromkeys(envs, 0)
