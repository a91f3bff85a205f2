"""Do preferences teach the tiny model? Two recipes over three seeds, and a control that cannot.

    python benchmarks/learning_preferences.py [--seeds 1 2 3]

`preferences` learns by DPO from the pairs of a file: the accuracy on held-out pairs after its last
step. `online_dpo` makes its own pairs in two rounds: the mean reward of the evaluation after them.
The control has a learning rate of 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
RLC = (sys.executable, "-m", "rlc")
MEASURED = {
    "preferences": ("align", "heldout/accuracy"),
    "online_dpo": ("heldout", "eval/heldout/mean_reward"),
}


def last(recipe: str, seed: int, rate: float | None) -> tuple[float, float]:
    """What a recipe is measured by at its end, and the seconds of all its steps."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [*RLC, "run", str(ROOT / "recipes" / f"{recipe}.rl"), "--quiet"]
        command += ["--seed", str(seed), "--run-dir", str(out)]
        command += [] if rate is None else ["--set", f"learning_rate={rate}"]
        # The control does not reach what the recipe expects, and says so with its exit status.
        subprocess.run(command, check=rate is None, capture_output=True, cwd=ROOT)
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    stage, key = MEASURED[recipe]
    found = [record[key] for record in records if record["stage"] == stage and key in record]
    return found[-1], sum(record["time/total"] for record in records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    for recipe, (_, key) in MEASURED.items():
        for seed in args.seeds:
            (taught, seconds), (control, _) = last(recipe, seed, None), last(recipe, seed, 0.0)
            print(
                f"{recipe:12} seed {seed}  {key}: {control:.3f} without learning, {taught:.3f} "
                f"with it  {seconds:6.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
