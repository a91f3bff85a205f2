"""Seconds a step of on-policy distillation of `rlc run` and of tinker-cookbook's
`distillation/train_on_policy`, side by side.

    python benchmarks/distillation.py [--rounds 3] [--steps 8]

One server (`benchmarks/simulated.py`, a process of its own) computes nothing and has declared
latencies: sample k of a prompt, and the logprobs of a text, take the same heavy-tailed time whoever
asks. Both programs use the unmodified SDK, the same model, teacher, prompts and batch, and take
turns within a round. A step is what lies between two optimiser updates, on the server's clock; the
whole is from the first request to the last update.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import tinker
from side_by_side import compare, peer_command, rlc_command, serving, take_turns

WANTED = 0.95
GROUPS, MEMBERS = 16, 4
LATENCIES: dict[str, Any] = {
    "sample": "lognormal:0.5,0.7",
    "score": "lognormal:0.3,0.7",
    "gradient": 0.8,
    "update": 0.1,
    "snapshot": 0.1,
}
RECIPE = """\
model policy {{ base = "tiny" lora_rank = 8 }}
model teacher = policy {{ weights = "{teacher}" }}
env prompts = rows("{folder}/prompts.jsonl", shuffle = false)
train main {{
  model = policy
  env = prompts
  teacher = reverse_kl(teacher, coef = 1.0)
  batch = groups({groups}, group_size = {members})
  sampling = sample(max_tokens = 16)
  loss = importance_sampling()
  optimizer = adam(1e-4)
  steps = {steps}
}}
"""


def saved_model(url: str) -> tuple[str, str]:
    """A model on the server that is neither's own: paths of its state, and of its weights."""
    os.environ |= {"TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}
    model = tinker.ServiceClient(base_url=url).create_lora_training_client("tiny", rank=8).result()
    state = model.save_state("teacher").result().path
    return state, model.save_weights_for_sampler("teacher").result().path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [{"prompt": f"Problem {i}: 0, 1 or 2?"} for i in range((options.steps + 4) * GROUPS)]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        with serving(folder / "served", **LATENCIES) as url:
            state, weights = saved_model(url)
            sizes = {"groups": GROUPS, "members": MEMBERS, "steps": options.steps}
            text = RECIPE.format(folder=folder, teacher=state, **sizes)
            (folder / "distil.rl").write_text(text)
            peer = "cookbook_distillation.py", folder / "prompts.jsonl", weights, *sizes.values()
            sides = {"rlc": rlc_command(folder / "distil.rl"), "cookbook": peer_command(*peer)}
            runs = take_turns(sides, options.rounds, folder, url)
    compare("step", {side: [run.step for run in of] for side, of in runs.items()}, WANTED)
    compare("whole", {side: [run.whole for run in of] for side, of in runs.items()}, WANTED)


if __name__ == "__main__":
    main()
