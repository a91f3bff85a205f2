"""Seconds a step of DPO of `rlc run` and of tinker-cookbook's `train_dpo`, side by side.

    python benchmarks/preference.py [--rounds 3] [--steps 8] [--pairs 32]

One server (`benchmarks/simulated.py`, a process of its own) computes nothing and has declared
latencies: the logprobs of a text take the same heavy-tailed time whoever asks. Both programs use
the unmodified SDK, the same model, pairs, batch and loss, and take turns within a round. A step is
what lies between two optimiser updates, on the server's clock; the whole is from the first request
to the last update, so that nothing is hidden before the first step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from side_by_side import compare, peer_command, rlc_command, serving, take_turns

WANTED = 0.95
LATENCIES: dict[str, Any] = {
    "score": "lognormal:0.3,0.7",
    "forward": 0.4,
    "gradient": 0.8,
    "update": 0.1,
    "snapshot": 0.1,
}
RECIPE = """\
model policy {{ base = "tiny" lora_rank = 8 }}
preference main {{
  model = policy
  data = pairs("{folder}/pairs.jsonl")
  batch = {pairs}
  loss = dpo(beta = 0.1)
  optimizer = adam(1e-4)
  steps = {steps}
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=32, help="in a step")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            {"prompt": f"Problem {i}: even or odd?", "chosen": "even", "rejected": "odd"}
            for i in range(options.steps * options.pairs)
        ]
        (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        text = RECIPE.format(folder=folder, pairs=options.pairs, steps=options.steps)
        (folder / "dpo.rl").write_text(text)
        sides = {
            "rlc": rlc_command(folder / "dpo.rl"),
            "cookbook": peer_command("cookbook_dpo.py", folder / "pairs.jsonl", options.pairs),
        }
        with serving(folder / "served", **LATENCIES) as url:
            runs = take_turns(sides, options.rounds, folder, url)
    compare("step", {side: [run.step for run in of] for side, of in runs.items()}, WANTED)
    compare("whole", {side: [run.whole for run in of] for side, of in runs.items()}, WANTED)


if __name__ == "__main__":
    main()
