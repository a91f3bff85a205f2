"""Advantages of a million rollouts, against a loop over groups and tinker-cookbook, side by side.

    python benchmarks/advantages.py [--rollouts 1000000] [--group 8] [--runs 5]

Each is run in turn, so that a busy machine slows all; the best run of each counts. The loop is
what a trainer without vectorised groups does: a dictionary of groups, and numpy on each. The
cookbook's function only centres, so it is compared with `center()`.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from functools import reduce

import numpy as np
import numpy.typing as npt

from rlc.algo import (
    AdvantageStep,
    Baseline,
    Episodes,
    Returns,
    Scale,
    compute_advantages,
    scheme_of_returns,
    with_step,
)

Floats = npt.NDArray[np.float64]
_MEAN = Baseline("mean", "group", "value", "zero")
_EPISODE = Returns("episode", 1.0)
CENTER = with_step(scheme_of_returns("center", _EPISODE), _MEAN)
GRPO = with_step(CENTER, Scale("std", "group", "value", 1, 1e-6, "outside"))
_WHITENED: tuple[AdvantageStep, ...] = (
    Baseline("mean", "batch", "tokens", "zero"),
    Scale("std", "batch", "tokens", 1, 1e-8, "inside"),
)
_REBN: tuple[AdvantageStep, ...] = (
    Baseline("mean", "batch", "value", "zero"),
    Scale("std", "batch", "value", 1, 1e-9, "outside"),
)
WHITENED = reduce(with_step, _WHITENED, CENTER)
REBN = reduce(with_step, _REBN, scheme_of_returns("rebn", Returns("turn", 0.9)))


def batch(count: int, group: int, rng: np.random.Generator) -> Episodes:
    """Rollouts of one turn, group by group, in two environments."""
    label_R = np.arange(count) // group
    tokens_N, turns_R = rng.integers(1, 500, count), np.ones(count, dtype=np.int64)
    return Episodes(rng.normal(size=count), tokens_N, turns_R, label_R, label_R % 2)


def shuffled(episodes: Episodes, rng: np.random.Generator) -> Episodes:
    order = rng.permutation(len(episodes.turns_R))
    return Episodes(
        episodes.rewards_N[order],
        episodes.tokens_N[order],
        episodes.turns_R,
        episodes.group_R[order],
        episodes.env_R[order],
    )


def of_turns(episodes: Episodes, turns: int) -> Episodes:
    """The same rewards as rollouts of several turns."""
    count = len(episodes.turns_R) // turns
    kept = slice(0, count * turns)
    turns_R = np.full(count, turns)
    labels = episodes.group_R[:count], episodes.env_R[:count]
    return Episodes(episodes.rewards_N[kept], episodes.tokens_N[kept], turns_R, *labels)


def grpo_loop(episodes: Episodes) -> Floats:
    members: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(episodes.group_R.tolist()):
        members[label].append(index)
    out_R = np.zeros(len(episodes.turns_R))
    for own in members.values():
        rewards_G = episodes.rewards_N[own]
        out_R[own] = (rewards_G - rewards_G.mean()) / (rewards_G.std(ddof=1) + 1e-6)
    return out_R


def cookbook(episodes: Episodes, group: int) -> Callable[[], object] | None:
    try:
        from tinker_cookbook.rl.data_processing import compute_advantages as centred
        from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup
    except ImportError:
        return None
    one = Trajectory([], None)
    groups = [
        TrajectoryGroup([one] * len(rewards), rewards, [{}] * len(rewards))
        for rewards in (
            episodes.rewards_N[start : start + group].tolist()
            for start in range(0, len(episodes.rewards_N), group)
        )
    ]
    return lambda: centred(groups)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    ordered = batch(options.rollouts, options.group, rng)
    mixed, turns = shuffled(ordered, rng), of_turns(ordered, 4)
    works: dict[str, Callable[[], object]] = {
        "grpo, in order": lambda: compute_advantages(GRPO, ordered),
        "grpo, shuffled": lambda: compute_advantages(GRPO, mixed),
        "grpo, a loop over groups": lambda: grpo_loop(mixed),
        "center, in order": lambda: compute_advantages(CENTER, ordered),
        "reinforce_pp_baseline, shuffled": lambda: compute_advantages(WHITENED, mixed),
        "rebn, four turns a rollout": lambda: compute_advantages(REBN, turns),
    }
    theirs = cookbook(ordered, options.group)
    if theirs is not None:
        works["center, tinker-cookbook"] = theirs
    best = dict.fromkeys(works, float("inf"))
    for _ in range(options.runs):
        for name, work in works.items():
            best[name] = min(best[name], seconds(work))
    np.testing.assert_allclose(
        compute_advantages(GRPO, mixed).advantages_N, grpo_loop(mixed), atol=1e-9
    )
    print(f"{options.rollouts:,} rewards in groups of {options.group}, best of {options.runs}")
    for name, value in best.items():
        print(f"  {name:34} {value * 1e3:9.1f} ms")
    ratio = best["grpo, a loop over groups"] / best["grpo, shuffled"]
    print(f"  the loop takes {ratio:.0f} times as long as grpo, shuffled")
    if theirs is not None:
        ratio = best["center, tinker-cookbook"] / best["center, in order"]
        print(f"  tinker-cookbook takes {ratio:.0f} times as long as center, in order")


if __name__ == "__main__":
    main()
