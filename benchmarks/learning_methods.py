"""Does the tiny model learn by each method? Every one over three seeds, and a control that cannot.

    python benchmarks/learning_methods.py [--seeds 1 2 3] [--methods dpo kto distillation …]

The recipes are in `benchmarks/methods`. A method is judged by the mean reward of 512 episodes that
it never trains on, before → after. The control has the same recipe with chance in the place of what
is to be learnt (`method_data.py`). Preferences are the best and the worst of four replies that the
model itself gave, with another seed. Of distillation it says after how many sampled tokens the
model got to 0.75, by each signal.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from method_data import judging_endpoint, write_preferences, write_words

HERE = Path(__file__).parent
RLC = str(Path(sys.executable).with_name("rlc"))
ENOUGH = 0.75  # the reward up to which distillation counts its tokens
Metrics = list[dict[str, Any]]


@frozen
class Method:
    """A recipe with what its overrides make of it, and of its control. ``first`` is the evaluation
    before, where that is another one. ``endpoint``: its judge is behind one."""

    recipe: str
    overrides: Sequence[str] = ()
    control: Sequence[str] = ()
    evaluated: Sequence[str] = ("heldout",)
    first: str | None = None
    endpoint: bool = False


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
    "brier": _preference("brier(beta = 0.1)"),
    "kto": _preference("kto()", data="labelled"),
    "judged": Method("judged", control=['verdicts="shuffled.jsonl"', "warmth=1.0"]),
    "compared": Method("compared", endpoint=True),
    "ranked": Method("compared", ["main.env=ranked"], ["main.env=ranked"], endpoint=True),
    "implicit_reward": Method("reward_model", control=['align.data=pairs("random-pairs.jsonl")']),
    "online_dpo": Method("online_dpo", control=['grading="words.py:coin"'], first="before"),
    "iteration": Method(
        "iteration",
        control=["first.data.keep=all", "second.data.keep=all"],
        first="before",
    ),
    "prompt_distillation": Method("prompt_distillation", control=['said=""']),
    "self_distillation": Method("self_distillation", control=['shown="plain.jsonl"']),
    "forward_kl": Method("forward_kl", control=["taught=1", "rate=1e-12"]),
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


def report(name: str, what: str, method: Method, metrics: Metrics) -> None:
    """Print the held-out reward before → after, and of several signals the tokens up to ENOUGH."""
    for evaluation in method.evaluated:
        rewards, before = _rewards(metrics, evaluation), _rewards(metrics, method.first)
        first = min((before or rewards).items())[1]
        line = f"{first:.3f} → {rewards[max(rewards)]:.3f}"
        if len(method.evaluated) > 1:
            stage = evaluation.removeprefix("of_")
            line += f"  {stage:8} {tokens_until(rewards, stage, metrics)}"
        print(f"{name:20} {what:8} {line}", flush=True)


def _rewards(metrics: Metrics, evaluation: str | None) -> dict[int, float]:
    """The mean rewards of an evaluation, by the step after which it was."""
    key = f"eval/{evaluation}/mean_reward"
    return {row["step"]: row[key] for row in metrics if key in row}


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
        run(folder, REPLIES, 77)
        write_preferences(folder, folder / "replies.jsonl")
        write_words(folder)
        for method_name in args.methods:
            method = METHODS[method_name]
            for seed in args.seeds:
                report(method_name, f"seed {seed}", method, measured(folder, method, seed, False))
            if method.control or method.endpoint:
                metrics = measured(folder, method, args.seeds[0], True)
                report(method_name, "control", method, metrics)


def measured(folder: Path, method: Method, seed: int, control: bool) -> Metrics:
    """The metrics of a method, or of its control."""
    overrides = method.control if control else method.overrides
    if not method.endpoint:
        return run(folder, method, seed, *overrides)
    with judging_endpoint(by_chance=control) as url:
        return run(folder, method, seed, *overrides, f'url="{url}"')


if __name__ == "__main__":
    main()
