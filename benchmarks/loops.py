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
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median

HERE = Path(__file__).parent
GROUPS, MEMBERS, PARTS, STALENESS = 8, 8, 4, 2
SAMPLE, GRADIENT, UPDATE, SNAPSHOT = "lognormal:0.5,0.7", 0.8, 0.1, 0.1
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


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of the simulated server."""
    command = [sys.executable, str(HERE / "simulated.py"), "--checkpoints", str(folder)]
    command += ["--sample", SAMPLE, "--gradient", str(GRADIENT), "--update", str(UPDATE)]
    command += ["--snapshot", str(SNAPSHOT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("TINKER_BASE_URL=")
        finally:
            process.terminate()


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


def command(side: str, mode: str, url: str, folder: Path, out: Path, steps: int) -> list[str]:
    if side == "rlc":
        rlc = str(Path(sys.executable).with_name("rlc"))
        where = ["--service", "tinker", "--base-url", url, "--run-dir", str(out)]
        return [rlc, "run", str(folder / "loop.rl"), *where]
    sizes = [str(size) for size in (GROUPS, MEMBERS, steps, STALENESS)]
    script = str(HERE / "peers/cookbook_loop.py")
    return [sys.executable, script, url, mode, str(folder / "questions.jsonl"), str(out), *sizes]


def steps_of(events: Path, before: int) -> tuple[list[float], list[list[float]]]:
    """When the updates of the newest model were done, and by step the seconds of its samples."""
    rows = [json.loads(line) for line in events.read_text().splitlines()[before:]]
    updates = [row["at"] for row in rows if row["kind"] == "update"]
    return updates, [row["seconds"] for row in rows if row["kind"] == "sample"]


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
    is under way, or all are (see `rlc.runtime.rollouts.streamed_groups`). One part is all."""
    ready, share, taken, done = sorted(groups), -(-len(groups) // parts), list[float](), 0.0
    while ready:
        at = min(max(ready[min(share, len(ready)) - 1], done), ready[-1])
        taken.append(at)
        done = max(at, done) + GRADIENT
        ready = [group for group in ready if group > at]
    return taken


def measure(mode: str, rounds: int, steps: int) -> None:
    seconds: dict[str, list[float]] = {"rlc": [], "cookbook": []}
    bounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, mode, steps)
        events = folder / "served" / "events.jsonl"
        events.parent.mkdir()
        events.touch()
        with serving(folder / "served") as url:
            for number in range(rounds):
                for side in seconds if number % 2 else reversed(seconds):
                    before = len(events.read_text().splitlines())
                    run = command(side, mode, url, folder, folder / f"{side}-{number}", steps)
                    env = os.environ | {"TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}
                    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=300)
                    if done.returncode:
                        sys.exit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
                    updates, samples = steps_of(events, before)
                    seconds[side].append((updates[-1] - updates[0]) / (len(updates) - 1))
                    if side == "rlc":
                        bounds.append(critical_seconds(folder, samples, steps))
    report(mode, seconds, fmean(bounds))


def report(mode: str, seconds: dict[str, list[float]], critical: float) -> None:
    middle = {side: median(values) for side, values in seconds.items()}
    for side, values in seconds.items():
        spread = f"{min(values):.3f} … {max(values):.3f}"
        print(f"{mode:13} {side:9} {middle[side]:7.3f} s a step   ({spread})", flush=True)
    ratio, over = middle["rlc"] / middle["cookbook"], middle["rlc"] / critical
    print(
        f"{mode:13} ratio     {ratio:7.3f}   (wanted ≤ {BOUNDS[mode]})\n"
        f"{mode:13} critical  {critical:7.3f} s; rlc takes {over:.3f} of it (wanted ≤ 1.1)\n",
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
