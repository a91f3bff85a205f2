"""Whole-process time of ``rlc check`` against bare Python, side by side.

    python benchmarks/check_startup.py [--runs 21]

The two are run in turn, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

RECIPES = Path(__file__).parent.parent / "recipes"


# As on a user's machine, where Python keeps the bytecode of what it has imported before.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    rlc = str(Path(sys.executable).with_name("rlc"))
    commands = {
        "bare python": [sys.executable, "-c", "pass"],
        "rlc --version": [rlc, "--version"],
        **{
            f"rlc check {recipe.name}": [rlc, "check", str(recipe)]
            for recipe in RECIPES.glob("*.rl")
        },
    }
    for command in commands.values():
        seconds(command)  # fill the caches
    times = {name: list[float]() for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(seconds(command))
    bare = median(times["bare python"])
    print(f"{'':28} {'median ms':>10} {'min ms':>8} {'× bare python':>14}")
    for name, values in times.items():
        print(
            f"{name:28} {median(values) * 1e3:10.1f} {min(values) * 1e3:8.1f}"
            f" {median(values) / bare:14.1f}"
        )


if __name__ == "__main__":
    main()
