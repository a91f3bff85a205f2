"""Kill runs at random moments, resume them, compare them with undisturbed ones: one command.

    .venv/bin/python tests/support/kill_suite.py --kills 48

Half of the kills come at random times, half at random moments of something that a run does (it
samples, trains, saves, evaluates, journals). A run is killed up to six times on its way. Exits
with 1 if any run ends otherwise than its undisturbed twin, to the bit.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import rlc.service.engine  # noqa: F401 (before anything imports torch)

from killing import (  # isort: skip
    SCENARIOS,
    Kill,
    Victim,
    any_moment,
    counted,
    differences,
    finished,
    outcome,
    write_recipe,
)

_MOST = 6  # kills of one run


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    args = parser.parse_args()
    names = args.scenario or list(SCENARIOS)
    share, failed, total = -(-args.kills // len(names)), 0, list[Kill]()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rng = random.Random(f"{args.seed} {name}")
            kills, wrong = kill_scenario(Path(folder), name, share, rng)
            failed += len(wrong)
            total += kills
            print(f"{name}: {len(kills)} kills, {dict(counted(kills))}", flush=True)
            for line in wrong:
                print(f"  DIFFERS {line}", flush=True)
    lost = [max(kill.lost.values(), default=0) for kill in total]
    print(f"{len(total)} kills, {dict(counted(total))}; {failed} runs differ")
    print(f"journalled steps lost with a kill: {sorted(lost)}")
    return 1 if failed else 0


def kill_scenario(
    folder: Path, name: str, wanted: int, rng: random.Random
) -> tuple[list[Kill], list[str]]:
    """At least so many kills of runs of a scenario, and what differs from an undisturbed one."""
    recipe = write_recipe(folder, name)
    whole, log = folder / f"{recipe.stem}-whole", folder / f"{recipe.stem}.log"
    words = ["run", str(recipe), "--seed", "3", "--run-dir", str(whole)]
    seconds, expected = finished(words, log), outcome(whole)
    kills, wrong, runs = list[Kill](), list[str](), 0
    while len(kills) < wanted:
        runs += 1
        victim = Victim(recipe, folder / f"{recipe.stem}-{runs}", log)
        mine = _kill_often(victim, min(_MOST, wanted - len(kills)), seconds, rng)
        victim.finish()
        kills += mine
        wrong += [f"run {runs}: {line}" for line in differences(expected, outcome(victim.path))]
        limit = 2 if "no rolling" in name else 1
        wrong += [f"run {runs}: {kill} lost steps" for kill in mine if _lost(kill) > limit]
    return kills, wrong


def _lost(kill: Kill) -> int:
    return max(kill.lost.values(), default=0)


def _kill_often(victim: Victim, most: int, seconds: float, rng: random.Random) -> list[Kill]:
    kills = list[Kill]()
    while len(kills) < most:
        if rng.random() < 0.5:
            kill = victim.kill_after(rng.uniform(0, seconds / 3))
        else:
            kill = victim.kill_at(*any_moment(rng))
        if kill is None:
            break
        kills.append(kill)
    return kills


if __name__ == "__main__":
    since = time.monotonic()
    status = main()
    print(f"{time.monotonic() - since:.0f} s")
    sys.exit(status)
