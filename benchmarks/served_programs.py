"""Programs of tinker-cookbook and rLLM, unmodified, against ``rlc serve`` with the tiny model.

    python benchmarks/served_programs.py [--only rl_loop] [--cookbook FOLDER] [--rllm FOLDER]

``--cookbook`` is a folder with another version of it than the one that is installed, such as ``pip
install --no-deps --target FOLDER tinker-cookbook==0.6.1`` makes, ``--rllm`` a checkout of rLLM,
whose packages (hydra-core, litellm, …) and gateway are installed.

Each is a process of its own, with the arguments below and a few steps. What it would load from the
network has stand-ins: data sets have the rows of the tests, tokenizers are the tiny model's, and
answers are right by their length, or by turns, so that groups differ. The exit status is 1 if one
has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

from serving import KEY, serving

HERE = Path(__file__).parent
RECIPES = "tinker_cookbook.recipes"
MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3.6-35B-A3B")  # the second judges
_BATCHES = ["batch_size=4", "max_steps=3"]
_GROUPS = ["groups_per_batch=4", "max_steps=3", "behavior_if_log_dir_exists=delete"]
_LOSSES = ["importance_sampling", "ppo", "cispo"]
_RUBRICS = [f"{name}_jsonl_path=rubric.jsonl" for name in ("train", "test")]
_RUBRICS += [f"{name}=qwen3_instruct" for name in ("renderer_name", "grader_renderer_name")]
_QUESTION = {"role": "user", "content": "What is 2 + 3?"}
_ITEM = {
    "rubric_str": "The answer is 5.",
    "extraction_regex": "([0-9])",
    "grader_output_format_instruction": "Give a number.",
}
_RUBRIC = {"convo": [_QUESTION], "rubric_items": [_ITEM]}
PROGRAMS: dict[str, tuple[str, list[str]]] = {
    "rl_loop": ("rl_loop", [*_BATCHES, "group_size=4", "max_tokens=16"]),
    "sl_loop": ("sl_loop", _BATCHES),
    "math_rl": ("math_rl.train", _GROUPS),
    "math_rl, GSM8K": ("math_rl.train", [*_GROUPS, "env=gsm8k", "max_tokens=16"]),
    "math_rl, asynchronous": ("math_rl.train", [*_GROUPS, "max_steps_off_policy=2"]),
    "math_rl, two substeps": ("math_rl.train", [*_GROUPS, "num_substeps=2"]),
    "preference.dpo": (
        "preference.dpo.train",
        ["batch_size=4", "max_steps=2", "behavior_if_log_dir_exists=delete"],
    ),
    "rubric": ("rubric.train", [*_GROUPS, *_RUBRICS]),
    "rubric, asynchronous": ("rubric.train", [*_GROUPS, *_RUBRICS, "max_steps_off_policy=2"]),
} | {f"math_rl, {loss}": ("math_rl.train", [*_GROUPS, f"loss_fn={loss}"]) for loss in _LOSSES}
_RLLM = "cookbooks/solver_judge_flow/train.py"
_OF_RLLM = [
    *("rllm/backend=tinker", f"model.name={MODELS[0]}", "model.lora_rank=4"),
    *("training.group_size=4", "validation.group_size=1", "data.train_batch_size=4"),
    *("data.val_batch_size=4", "data.max_prompt_length=1024", "data.max_response_length=16"),
    *("rllm.trainer.total_epochs=1", "rllm.trainer.total_batches=2", "rllm.trainer.test_freq=2"),
    *("rllm.trainer.save_freq=1", "rllm.trainer.logger=[console]", "hydra.run.dir=hydra"),
]


def run_program(module: str) -> None:
    """Run a module or a file as the main one, with stand-ins for what is on the network."""
    sys.path.append(str(HERE.parent / "tests" / "support"))
    import datasets
    import transformers
    from yardstick import load_dataset

    from rlc.service import tiny

    stand_in: Any = transformers.AutoTokenizer
    loaded = stand_in.from_pretrained(tiny.path())
    stand_in.from_pretrained = lambda *_, **__: loaded
    stand_in = datasets
    stand_in.load_dataset = lambda path, name=None, **given: load_dataset(path, name, **given)
    if module.endswith(".py"):
        run_rllm(Path(module))
        return
    from tinker_cookbook.recipes.math_rl import math_env, math_grading  # they take the loader

    for grading in (math_env, math_grading):
        grading.extract_boxed = lambda text: text
        grading.grade_answer = lambda given, _: len(given) % 2 == 0
    runpy.run_module(f"{RECIPES}.{module}", run_name="__main__", alter_sys=True)


def run_rllm(script: Path) -> None:
    """Run a script of rLLM on made-up sums."""
    reward: Any = import_module("rllm.rewards.countdown_reward")
    registry: Any = import_module("rllm.data.dataset").DatasetRegistry
    rows = [{"target": 10 + number, "nums": [1, 2, 7 + number]} for number in range(8)]
    for split in ("train", "test"):
        registry.register_dataset("countdown", rows, split)
    scores = cycle((1.0, 0.0, 0.0))
    reward.compute_score = lambda *_: next(scores)
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")


def run_against(url: str, name: str, folder: Path, env: dict[str, str]) -> bool:
    """Run a program in a folder, and print what came of it; return whether it has run."""
    module, words = PROGRAMS[name]
    log = folder / name.replace(" ", "_")
    given = [f"model_name={MODELS[0]}", f"log_path={log}", f"base_url={url}", *words]
    if module.endswith(".py"):
        given = [f"tinker_base_url={url}", *words]
    command, began = [sys.executable, __file__, "--run", module, *given], time.monotonic()
    env |= {"TINKER_BASE_URL": url}  # some open clients of their own
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    seconds, runs = time.monotonic() - began, done.returncode == 0
    metrics = log / "metrics.jsonl"
    steps = len(metrics.read_text().splitlines()) if metrics.is_file() else 0
    steps += sum("train/loss" in line for line in done.stdout.split("\nstep:")[1:])
    why = "" if runs else (done.stderr.strip().splitlines() or ["?"])[-1]
    end = f"{steps:2} steps with metrics {seconds:4.0f} s  {why}"
    print(f"{name:28} {'runs ' if runs else 'fails'} {end}", flush=True)
    return runs


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        module = sys.argv[2]
        del sys.argv[1:3]
        run_program(module)
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cookbook", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="WORDS")
    parser.add_argument("--rllm", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    paths = [str(one.resolve()) for one in (args.cookbook, args.rllm) if one is not None]
    paths.append(os.environ.get("PYTHONPATH", ""))
    if args.rllm is not None:
        PROGRAMS["rLLM, solver and judge"] = str(args.rllm.resolve() / _RLLM), _OF_RLLM
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        env = os.environ | {"TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0", "RLLM_HOME": work}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        (folder / "rubric.jsonl").write_text(f"{json.dumps(_RUBRIC)}\n" * 16)
        with serving(folder / "served", None, [f"{name}=tiny" for name in MODELS]) as (url, _):
            chosen = [name for name in PROGRAMS if args.only in name]
            ran = [run_against(url, name, folder, env) for name in chosen]
    sys.exit(not all(ran))


if __name__ == "__main__":
    main()
