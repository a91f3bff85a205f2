"""Does the tiny model learn? Both recipes over three seeds, and a control that cannot.

    python benchmarks/learning.py [--seeds 1 2 3] [--recipes quickstart spell_backward]

Prints the mean reward of the first and last five steps and the seconds of training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parent.parent
RLC = str(Path(sys.executable).with_name("rlc"))


def run(recipe: str, seed: int, *overrides: str) -> tuple[float, float, float]:
    """First five, last five, and the seconds that the steps took."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [RLC, "run", str(ROOT / "recipes" / f"{recipe}.rl"), "--quiet"]
        command += ["--seed", str(seed), "--run-dir", str(out)]
        command += [part for override in overrides for part in ("--set", override)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rewards = [step["reward/mean"] for step in steps]
    return fmean(rewards[:5]), fmean(rewards[-5:]), sum(step["time/total"] for step in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--recipes", nargs="+", default=["quickstart", "spell_backward"])
    args = parser.parse_args()
    for recipe in args.recipes:
        for seed in args.seeds:
            report(recipe, f"seed {seed}", run(recipe, seed))
        control = run(recipe, args.seeds[0], "learning_rate=0.0", "main.steps=20")
        report(recipe, "rate 0", control)


def report(recipe: str, what: str, result: tuple[float, float, float]) -> None:
    first, last, seconds = result
    print(f"{recipe:16} {what:8} {first:.3f} → {last:.3f}  {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
