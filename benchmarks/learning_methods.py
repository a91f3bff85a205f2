"""Does the tiny model learn by each method? Every one over three seeds, and a control that cannot.

    python benchmarks/learning_methods.py [--seeds 1 2 3] [--methods dpo kto distillation …]

The recipes are in `benchmarks/methods`. A method is judged by the mean reward of 512 episodes that
it never trains on, before → after. The control has the same recipe without what is to be learnt.
Preferences are the best and the worst of four replies that the model itself gave, with another
seed. Of distillation it says after how many sampled tokens the model got to 0.75, by each signal.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

HERE = Path(__file__).parent
RLC = str(Path(sys.executable).with_name("rlc"))
ENOUGH = 0.75  # the reward up to which distillation counts its tokens
LEAST = 0.2  # by how much the better reply earned more
INSTRUCTION = "Put your answer inside \\boxed{}."
Metrics = list[dict[str, Any]]


@frozen
class Method:
    """A recipe with what its overrides make of it, and of its control."""

    recipe: str
    overrides: Sequence[str] = ()
    control: Sequence[str] = ()
    evaluated: Sequence[str] = field(default=("heldout",))


def _preference(loss: str, *more: str, data: str = "pairs") -> Method:
    def learnt(kind: str) -> list[str]:
        return [f"main.loss={loss}", f'main.data={data}("{kind}-{data}.jsonl")', *more]

    return Method("preferences", learnt("own"), learnt("random"))


METHODS = {
    "dpo": _preference("dpo()"),
    "ipo": _preference("ipo()"),
    "simpo": _preference("simpo()"),
    "cpo": _preference("cpo()"),
    "orpo": _preference("orpo(beta = 1)", "main.optimizer.learning_rate=3e-3"),
    "kto": _preference("kto()", data="labelled"),
    "distillation": Method("distillation", evaluated=("of_student", "of_both", "of_alone")),
}
REPLIES = Method("replies")


def run(folder: Path, method: Method, seed: int, *overrides: str) -> Metrics:
    """Run a recipe beside the data that was made for it. Return its metrics."""
    with tempfile.TemporaryDirectory() as out:
        command = [RLC, "run", str(folder / f"{method.recipe}.rl"), "--quiet"]
        command += ["--seed", str(seed), "--run-dir", f"{out}/run"]
        command += [part for override in overrides for part in ("--set", override)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            sys.exit(f"{method.recipe} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        if method is REPLIES:
            shutil.copy(f"{out}/run/rollouts.jsonl", folder / "replies.jsonl")
        lines = Path(f"{out}/run/metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def write_preferences(folder: Path) -> None:
    """Write what is compared: the best and the worst of four replies of the model to one word. In
    the control's files it is drawn which of them counts as the better one."""
    run(folder, REPLIES, 77)
    by_task: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in (folder / "replies.jsonl").read_text("utf-8").splitlines():
        episode = json.loads(line)
        by_task[episode["task"]] += episode["turns"]
    draw = random.Random(1)
    for kind in ("own", "random"):
        pairs = []
        for turns in by_task.values():
            *_, best = ordered = sorted(turns, key=lambda turn: float(turn["reward"]))
            if best["reward"] - ordered[0]["reward"] >= LEAST:
                sides = [ordered[0]["action"], best["action"]]
                if kind == "random":
                    draw.shuffle(sides)
                prompt = f"{best['observation'].rstrip()}\n{INSTRUCTION}"
                pairs.append({"prompt": prompt, "rejected": sides[0], "chosen": sides[1]})
        single = [
            {"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
            for pair in pairs
            for side in ("rejected", "chosen")
        ]
        for name, rows in (("pairs", pairs), ("labelled", single)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{kind}-{name}.jsonl").write_text(text, "utf-8")
    shutil.copy(folder / "own-pairs.jsonl", folder / "pairs.jsonl")


def report(name: str, what: str, method: Method, metrics: Metrics) -> None:
    """Print the held-out reward before → after, and of several signals the tokens up to ENOUGH."""
    for evaluation in method.evaluated:
        key = f"eval/{evaluation}/mean_reward"
        rewards = {row["step"]: row[key] for row in metrics if key in row}
        line = f"{rewards[min(rewards)]:.3f} → {rewards[max(rewards)]:.3f}"
        if len(method.evaluated) > 1:
            stage = evaluation.removeprefix("of_")
            line += f"  {stage:8} {tokens_until(rewards, stage, metrics)}"
        print(f"{name:14} {what:8} {line}", flush=True)


def tokens_until(rewards: Mapping[int, float], stage: str, metrics: Metrics) -> str:
    """The tokens that a stage sampled until an evaluation of it got to ENOUGH."""
    step = next((step for step, reward in sorted(rewards.items()) if reward >= ENOUGH), None)
    if step is None:
        return f"never {ENOUGH}"
    rows = [row for row in metrics if row["stage"] == stage and row["step"] <= step]
    return f"{ENOUGH} after {sum(row['tokens/sampled'] for row in rows):,} tokens, step {step}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(HERE / "methods", folder, dirs_exist_ok=True)
        write_preferences(folder)
        for method_name in args.methods:
            method = METHODS[method_name]
            for seed in args.seeds:
                metrics = run(folder, method, seed, *method.overrides)
                report(method_name, f"seed {seed}", method, metrics)
            if method.control:
                metrics = run(folder, method, args.seeds[0], *method.control)
                report(method_name, "control", method, metrics)


if __name__ == "__main__":
    main()
