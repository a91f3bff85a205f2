"""Where a quickstart step spends its time, by node of the step graph.

    python benchmarks/quickstart_step.py [--steps 10] [--recipe recipes/quickstart.rl]

Runs the recipe itself and reads the metrics it writes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "quickstart.rl")
    args = parser.parse_args()
    rlc = str(Path(sys.executable).with_name("rlc"))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [rlc, "run", args.recipe, "--quiet", "--run-dir", run]
        command += ["--set", f"main.steps={args.steps}"]
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        whole = time.perf_counter() - started
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    report(steps, whole)


def report(steps: list[dict[str, float]], whole: float) -> None:
    total = median(step["time/total"] for step in steps)
    print(f"{len(steps)} steps, whole process {whole:.1f} s, median step {total:.3f} s")
    for key in steps[0]:
        if key.startswith("time/") and key != "time/total":
            value = median(step[key] for step in steps)
            print(f"  {key.removeprefix('time/'):18} {value:8.4f} s {value / total:7.1%}")
    for kind in ("sampled", "trained"):
        tokens = median(step[f"tokens/{kind}"] for step in steps)
        print(f"  tokens {kind:11} {tokens:8,.0f} a step, {tokens / total:8,.0f} a second of step")


if __name__ == "__main__":
    main()
