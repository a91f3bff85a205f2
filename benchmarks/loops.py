"""Seconds a step of `rlc run` and of tinker-cookbook's `rl/train.py`, side by side.

    python benchmarks/loops.py [--rounds 3] [--steps 8] [--modes synchronous,streamed,asynchronous]

One server (`benchmarks/simulated.py`, a process of its own) computes nothing and has declared
latencies: sample k of a prompt takes the same heavy-tailed time whoever asks. Both programs use
the unmodified SDK, the same model, questions, order, batch and overlap, and take turns within a
round. A step is what lies between two optimiser updates, on the server's clock. The critical path
is computed from the latencies that were drawn, by `rlc.pricing.critical_path`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from side_by_side import compare, peer_command, rlc_command, serving, take_turns

GROUPS, MEMBERS, PARTS, STALENESS = 8, 8, 4, 2
GRADIENT, UPDATE, SNAPSHOT = 0.8, 0.1, 0.1
LATENCIES: dict[str, Any] = {
    "sample": "lognormal:0.5,0.7",
    "gradient": GRADIENT,
    "update": UPDATE,
    "snapshot": SNAPSHOT,
}
OVERLAPS = {
    "synchronous": "synchronous()",
    "streamed": f"streamed(minibatches = {PARTS})",
    "asynchronous": f"asynchronous(max_staleness = {STALENESS})",
}
BOUNDS = {"synchronous": 1.0, "streamed": 0.9, "asynchronous": 0.9}
RECIPE = """\
model policy {{ base = "tiny" lora_rank = 8 }}
env questions = problems("{folder}/questions.jsonl", grader = exact, shuffle = false) |> chat()
train main {{
  model = policy
  env = questions
  batch = groups({groups}, group_size = {members})
  sampling = sample(max_tokens = 16)
  advantage = center()
  loss = {loss}()
  optimizer = adam(1e-4)
  steps = {steps}
  overlap = {overlap}
}}
"""


def write_inputs(folder: Path, mode: str, steps: int) -> None:
    rows = [
        {"question": f"Problem {i}: is it 0, 1 or 2?", "answer": str(i % 3)}
        for i in range((steps + 4) * GROUPS)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = RECIPE.format(
        folder=folder,
        groups=GROUPS,
        members=MEMBERS,
        steps=steps,
        overlap=OVERLAPS[mode],
        loss="ppo" if mode == "asynchronous" else "importance_sampling",
    )
    (folder / "loop.rl").write_text(text)


def critical_seconds(folder: Path, samples: list[list[float]], steps: int) -> float:
    """The mean step after the first on the plan's graph, its nodes taking what was drawn for the
    step: groups in order, of which each is as slow as its slowest member."""
    import rlc
    from rlc.pricing.critical_path import completion_times, parts_of

    plan = rlc.load(str(folder / "loop.rl")).plan()
    count = parts_of(plan.graph, "main")["rollouts"]
    slowest = [max(group) for group in samples]

    def seconds(step: int) -> dict[str, list[float]]:
        taken = taken_at(slowest[step * GROUPS : (step + 1) * GROUPS], count)
        gradients = [GRADIENT] * len(taken)
        empty = count - len(taken)
        return {
            "snapshot": [SNAPSHOT],
            "rollouts": taken + taken[-1:] * empty,
            "forward_backward": gradients + [0.0] * empty,
            "optim_step": [UPDATE],
        }

    done = completion_times(plan.graph, "main", [seconds(step) for step in range(steps)])
    return (done[-1] - done[0]) / (steps - 1)


def taken_at(groups: list[float], parts: int) -> list[float]:
    """When each part of the groups is taken that has any: once its share is ready and no gradient
    is under way, or all are (see `rlc.runtime.rollouts.groups`). One part is all."""
    ready, share, taken, done = sorted(groups), -(-len(groups) // parts), list[float](), 0.0
    while ready:
        at = min(max(ready[min(share, len(ready)) - 1], done), ready[-1])
        taken.append(at)
        done = max(at, done) + GRADIENT
        ready = [group for group in ready if group > at]
    return taken


def measure(mode: str, rounds: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, mode, steps)
        sizes = (GROUPS, MEMBERS, steps, STALENESS)
        sides = {
            "rlc": rlc_command(folder / "loop.rl"),
            "cookbook": peer_command("cookbook_loop.py", mode, folder / "questions.jsonl", *sizes),
        }
        with serving(folder / "served", **LATENCIES) as url:
            runs = take_turns(sides, rounds, folder, url)
        bounds = [critical_seconds(folder, run.values("sample"), steps) for run in runs["rlc"]]
    seconds = {side: [run.step for run in of] for side, of in runs.items()}
    ours, critical = compare(mode, seconds, BOUNDS[mode])["rlc"], fmean(bounds)
    print(
        f"{mode:13} critical  {critical:7.3f} s; rlc takes {ours / critical:.3f} of it "
        "(wanted ≤ 1.1)\n",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--modes", default=",".join(OVERLAPS))
    options = parser.parse_args()
    for mode in options.modes.split(","):
        measure(mode, options.rounds, options.steps)


if __name__ == "__main__":
    main()
