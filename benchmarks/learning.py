"""Does the tiny model learn? Recipes over three seeds, and a control that cannot.

    python benchmarks/learning.py [--seeds 1 2 3] [--recipes quickstart spell_backward spell_duel]

A game of GEM of several turns, a question of GEM with one answer, and two solvers with a judge.
Prints the mean reward of the first and last five steps of the stage ``main``, the seconds of
training, and what each role gained.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parent.parent
RLC = str(Path(sys.executable).with_name("rlc"))
RECIPES = ("quickstart", "spell_backward", "spell_duel")


def run(recipe: str, seed: int, *overrides: str) -> list[dict[str, Any]]:
    """The metrics of the steps of ``main``."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [RLC, "run", str(ROOT / "recipes" / f"{recipe}.rl"), "--quiet"]
        command += ["--seed", str(seed), "--run-dir", str(out)]
        command += [part for override in overrides for part in ("--set", override)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [step for step in steps if step["stage"] == "main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    args = parser.parse_args()
    for recipe in args.recipes:
        for seed in args.seeds:
            report(recipe, f"seed {seed}", run(recipe, seed))
        still = "main.optimizer.learning_rate=0.0", "main.steps=10"
        report(recipe, "rate 0", run(recipe, args.seeds[0], *still))


def report(recipe: str, what: str, steps: Sequence[Mapping[str, Any]]) -> None:
    seconds = sum(step["time/total"] for step in steps)
    print(f"{recipe:16} {what:8} {gain(steps, 'reward/mean')}  {seconds:6.1f} s", flush=True)
    for name in sorted(name for name in steps[0] if name.endswith(("/solver", "/judge"))):
        if name.startswith("reward/"):
            print(f"{'':16} {name.rpartition('/')[2]:8} {gain(steps, name)}", flush=True)


def gain(steps: Sequence[Mapping[str, Any]], name: str) -> str:
    """First five steps → last five."""
    first, last = (fmean(step[name] for step in part) for part in (steps[:5], steps[-5:]))
    return f"{first:.3f} → {last:.3f}"


if __name__ == "__main__":
    main()
