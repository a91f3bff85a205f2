"""How long a step of 1,000 episodes takes to compute again, beside another objective.

    python benchmarks/replays.py

A run of one step on the embedded engine's tiny model plays 125 groups of 8, and keeps all tokens;
the replay is timed in a process of its own, imports included, as `rlc replay` is: on the clock, and
in processor time, which other programs do not slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import rlc
from rlc.runtime import Observer, RunFolder

RECIPE = """
model policy { base = "tiny"  lora_rank = 8 }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> chat(instruction = "Answer in \\\\boxed{}.")
train main {
  model = policy  env = guess + spell  batch = groups(125, group_size = 8)
  sampling = sample(max_tokens = 32)  advantage = grpo()  loss = importance_sampling()
  kl = reference(policy.base, coef = 0.01)  optimizer = adam(1e-3)  steps = 1
}
"""
ASKED = ["--set", "main.advantage=rloo()", "--set", "main.loss=ppo()"]


def main() -> None:
    with TemporaryDirectory() as folder:
        recipe, run = Path(folder) / "recipe.rl", Path(folder) / "run"
        recipe.write_text(RECIPE, encoding="utf-8")
        made = RunFolder.create(run, rlc.load(recipe).plan())
        made.keep_tokens(None)
        made.close()
        rlc.resume(run, observer=Observer())
        size = sum(file.stat().st_size for file in run.glob("*.[bj]*"))
        for asked in ([], ASKED):
            began, used = time.perf_counter(), sum(os.times()[2:4])
            command = [sys.executable, "-m", "rlc", "replay", str(run), *asked]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            took = time.perf_counter() - began
            used = sum(os.times()[2:4]) - used
            print(f"{took:5.2f} s, {used:5.2f} s of processors  {' '.join(asked) or 'as it was'}")
        print(done.stdout.splitlines()[0], f"({size / 1e6:.1f} MB of rollouts and tokens)")


if __name__ == "__main__":
    main()
