"""How often verdicts on claims are wrong, and what early looks save: simulated sweeps.

    .venv/bin/python benchmarks/claims.py [SWEEPS]

Every claim is simulated where its verdict is wrong most easily: the mean is exactly at its limit.
Differences are normal, skewed, or those of shares of 64 tasks; the claims of a sweep have half of
their variance in common. Then the same with a real effect, for the seeds that are run: a
configuration is ended once its claim is decided.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from random import Random

from rlc.algo.paired.verdicts import holm, looks, tails_so_far

Draw = Callable[[Random], float]
ERROR = 0.05


def normal(random: Random) -> float:
    return random.gauss(0.0, 1.0)


def skewed(random: Random) -> float:
    """A mean of 0 and a spread of 1, with rare large values."""
    return random.expovariate(1.0) - 1.0


def share(random: Random) -> float:
    """The difference of two shares of 64 tasks, at 90 %."""
    won = [sum(random.random() < 0.9 for _ in range(64)) / 64 for _ in range(2)]
    return won[0] - won[1]


def wrong(draw: Draw, sweeps: int, seeds: int, claims: int, early: bool) -> tuple[float, float]:
    """Return the share of sweeps with a claim that is wrongly said to hold, and not to hold."""
    random, counts = Random(f"{draw.__name__} {seeds} {claims}"), [0, 0]
    for _ in range(sweeps):
        common = [draw(random) for _ in range(seeds)]
        tails = []
        for _ in range(claims):
            values = [part + draw(random) for part in common] if claims > 1 else common
            tails.append(tails_so_far(values, seeds, 0.0, early))
        for side in (0, 1):
            counts[side] += min(holm([both[side] for both in tails])) <= ERROR
    return counts[0] / sweeps, counts[1] / sweeps


def saved(effect: float, sweeps: int, seeds: int) -> tuple[float, float, float]:
    """Return how often one claim is decided with and without early looks, and the mean share of
    the seeds that are run with them."""
    random, decided, alone, ran = Random(f"{effect} {seeds}"), 0, 0, 0
    for _ in range(sweeps):
        values = [random.gauss(effect, 1.0) for _ in range(seeds)]
        alone += tails_so_far(values, seeds, 0.0, early=False)[0] <= ERROR
        needed = seeds
        for count in looks(seeds, early=True):
            if tails_so_far(values[:count], seeds, 0.0, early=True)[0] <= ERROR:
                needed, decided = count, decided + 1
                break
        ran += needed
    return decided / sweeps, alone / sweeps, ran / sweeps / seeds


def main() -> None:
    sweeps = int(sys.argv[1]) if sys.argv[1:] else 20_000
    chance = 2 * math.sqrt(ERROR * (1 - ERROR) / sweeps)
    print(f"{sweeps:,} sweeps each; at most {ERROR:.1%} may be wrong (by chance ± {chance:.1%})\n")
    print("differences  seeds  claims  looks   wrongly holds  wrongly not")
    for draw in (normal, share, skewed):
        for seeds, claims, early in (
            (3, 1, True),
            (5, 1, True),
            (5, 3, True),
            (10, 3, True),
            (5, 1, False),
        ):
            few = sweeps // 10 if draw is share else sweeps
            yes, no = wrong(draw, few, seeds, claims, early)
            how = "early" if early else "one"
            print(f"{draw.__name__:11}  {seeds:5}  {claims:6}  {how:5}  {yes:14.2%}  {no:11.2%}")
    print("\neffect  seeds  decided early  with one look  seeds run")
    for seeds in (3, 5, 10):
        for effect in (1.0, 2.0, 4.0, 8.0):
            decided, alone, ran = saved(effect, sweeps // 4, seeds)
            print(f"{effect:6}  {seeds:5}  {decided:13.1%}  {alone:13.1%}  {ran:9.1%}")


if __name__ == "__main__":
    main()
