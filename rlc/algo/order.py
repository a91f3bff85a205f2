"""The order of tasks and examples, which follows from seeds and numbers alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rlc.seeds import derive_seed


def draw(weights: dict[str, float], cursor: dict[str, int], count: int) -> list[tuple[str, int]]:
    """Return the next ``count`` tasks as (environment, task number), and advance ``cursor``.

    Each environment's share stays within one task of its weight: the one furthest behind is next,
    ties in the order of the recipe. The sequence depends only on the weights and the cursor, so a
    resumed run continues where it stopped.
    """
    total, tasks = sum(weights.values()), list[tuple[str, int]]()
    for _ in range(count):
        after = sum(cursor[env] for env in weights) + 1
        shortfalls = {env: w / total * after - cursor[env] for env, w in weights.items()}
        env = max(shortfalls, key=lambda name: shortfalls[name])
        tasks.append((env, cursor[env]))
        cursor[env] += 1
    return tasks


def sampled_examples(seed: int, stage: str, count: int, batch: int, step: int) -> Iterator[int]:
    """Yield the numbers of a step's examples; each epoch has a random order of all."""
    orders = dict[int, npt.NDArray[np.int64]]()
    for number in range((step - 1) * batch, step * batch):
        epoch, place = divmod(number, count)
        if epoch not in orders:
            stream = derive_seed(seed, "examples", stage, epoch)
            orders[epoch] = np.random.default_rng(stream).permutation(count)
        yield int(orders[epoch][place])
