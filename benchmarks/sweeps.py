"""How long `rlc explain` takes with a sweep of 1,000 trials, as a whole process.

    .venv/bin/python benchmarks/sweeps.py

Prints the best of several runs of each recipe, without the sweep and with it: seconds and those of
the processor, which other programs do not lengthen. The configurations are all different: with
``seeds`` fewer would be compiled.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 3
RATES = ", ".join(f"{i}e-5" for i in range(1, 11))
SIZES = ", ".join(str(i) for i in range(2, 12))
STEPS = ", ".join(str(10 * i) for i in range(1, 11))
SWEEP = f"""
param rate: float = 1e-4
param size: int = 8
param steps: int = 50
sweep many {{ of = main  over = {{ rate = [{RATES}]  size = [{SIZES}]  steps = [{STEPS}] }} }}
"""
# A recipe, and what of it the sweep varies.
RECIPES = {
    "quickstart": (
        ("adam(learning_rate)", "adam(rate)"),
        ("group_size = 8", "group_size = size"),
        ("steps     = 50", "steps     = steps"),
        ("param learning_rate: float = 3e-4", ""),
    ),
    "warm_start": (
        ("adam(3e-4)", "adam(rate)"),
        ("group_size = 8", "group_size = size"),
        ("steps     = 20", "steps     = steps"),
    ),
    "sudoku": (
        ("adam(learning_rate)", "adam(rate)"),
        ("turns(128, parallel = 64)", "turns(128, parallel = size)"),
        ("steps     = 200", "steps     = steps"),
        ("param learning_rate: float = 4e-5", ""),
    ),
}


def seconds(recipe: Path) -> str:
    """The best times of the whole command."""
    times, busy = [], []
    for _ in range(RUNS):
        since, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-m", "rlc", "explain", str(recipe)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - since)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
    return f"{min(times):.2f} s ({min(busy):.2f} s of a processor)"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, varied in RECIPES.items():
            text = (ROOT / "recipes" / f"{name}.rl").read_text(encoding="utf-8")
            plain, swept = Path(folder) / f"{name}.rl", Path(folder) / f"{name}-swept.rl"
            plain.write_text(text, encoding="utf-8")
            for old, new in varied:
                assert old in text, f"{name} has no {old!r}"
                text = text.replace(old, new)
            swept.write_text(text + SWEEP, encoding="utf-8")
            print(f"{name:12} {seconds(plain)}; with 1,000 trials {seconds(swept)}")


if __name__ == "__main__":
    main()
