"""Does the tiny model learn in OpenReward's environments, the tool's calls included?

    python benchmarks/learning_openreward.py [--seeds 1 2 3] [--recipes openreward_reverse …]
    python benchmarks/learning_openreward.py --set learning_rate=0     # the control

Starts the server of `examples/openreward_games.py`, runs each recipe with each seed, and prints
the mean of the first and last five steps of reinforcement learning: the reward, and for the game
the calls in an episode that were read and that could not be; with the seconds that its steps took.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parent.parent
RLC = str(Path(sys.executable).with_name("rlc"))
RECIPES = ("openreward_reverse", "openreward_games")
MEASURES = ("reward/mean", "tool_calls/guess", "parse_errors/guess")


@contextmanager
def games() -> Iterator[None]:
    """The server of the examples, at the address that the recipe has."""
    recipe = ROOT / "recipes" / f"{RECIPES[0]}.rl"
    url = re.search(r"http://[\d.]+:(\d+)", recipe.read_text(encoding="utf-8"))
    assert url is not None
    command = [sys.executable, str(ROOT / "examples" / "openreward_games.py"), "--port", url[1]]
    quiet = {**os.environ, "OPENREWARD_LOG_LEVEL": "CRITICAL"}
    process = subprocess.Popen(command, env=quiet, stdout=subprocess.DEVNULL)
    wait = ["curl", "-s", "--retry", "60", "--retry-connrefused", "--retry-delay", "1"]
    try:
        subprocess.run([*wait, f"{url[0]}/health"], check=True, stdout=subprocess.DEVNULL)
        yield
    finally:
        process.kill()
        process.wait()


def run(recipe: str, seed: int, changes: Sequence[str]) -> list[dict[str, Any]]:
    """The metrics of the steps of reinforcement learning."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [RLC, "run", f"recipes/{recipe}.rl", "--quiet", "--seed", str(seed)]
        command += ["--run-dir", str(out), *(f"--set={change}" for change in changes)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [step for step in steps if step["stage"] == "main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--set", nargs="+", default=[], dest="changes", metavar="NAME=VALUE")
    args = parser.parse_args()
    with games():
        for recipe in args.recipes:
            for seed in args.seeds:
                report(recipe, seed, run(recipe, seed, args.changes))


def report(recipe: str, seed: int, steps: list[dict[str, Any]]) -> None:
    seconds = sum(step["time/total"] for step in steps)
    changes = [
        f"{name} {fmean(s[name] for s in steps[:5]):.3f} → {fmean(s[name] for s in steps[-5:]):.3f}"
        for name in MEASURES
        if name in steps[0]
    ]
    print(f"{recipe} seed {seed}  {'  '.join(changes)}  {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
