"""Programs of tinker-cookbook, unmodified, against ``rlc serve`` with the tiny model.

    python benchmarks/served_programs.py [--only rl_loop] [--cookbook FOLDER]

``--cookbook`` is a folder with another version of it than the one that is installed, such as ``pip
install --no-deps --target FOLDER tinker-cookbook==0.6.1`` makes.

Each is a process of its own, with the arguments below and a few steps. What it would load from the
network has stand-ins: data sets have the rows of the tests, tokenizers are the tiny model's, and
answers are right by their length, so that groups differ. The exit status is 1 if one has failed.
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


def run_program(module: str) -> None:
    """Run a module as the main one, with stand-ins for what is on the network."""
    sys.path.append(str(HERE.parent / "tests" / "support"))
    import datasets
    import transformers
    from yardstick import load_dataset

    from rlc.service import tiny

    stand_in: Any = transformers.AutoTokenizer
    loaded = stand_in.from_pretrained(tiny.path())
    stand_in.from_pretrained = lambda *_, **__: loaded
    datasets.load_dataset = load_dataset
    from tinker_cookbook.recipes.math_rl import math_env, math_grading  # they take the loader

    for grading in (math_env, math_grading):
        grading.extract_boxed = lambda text: text
        grading.grade_answer = lambda given, _: len(given) % 2 == 0
    runpy.run_module(f"{RECIPES}.{module}", run_name="__main__", alter_sys=True)


def run_against(url: str, name: str, folder: Path, env: dict[str, str]) -> bool:
    """Run a program in a folder, and print what came of it; return whether it has run."""
    module, words = PROGRAMS[name]
    log = folder / name.replace(" ", "_")
    given = [f"model_name={MODELS[0]}", f"log_path={log}", f"base_url={url}", *words]
    command, began = [sys.executable, __file__, "--run", module, *given], time.monotonic()
    env |= {"TINKER_BASE_URL": url}  # some open clients of their own
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    seconds, runs = time.monotonic() - began, done.returncode == 0
    metrics = log / "metrics.jsonl"
    steps = len(metrics.read_text().splitlines()) if metrics.is_file() else 0
    why = "" if runs else (done.stderr.strip().splitlines() or ["?"])[-1]
    end = f"{steps:2} lines of metrics {seconds:4.0f} s  {why}"
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
    args = parser.parse_args()
    paths = [str(args.cookbook.resolve())] if args.cookbook else []
    paths.append(os.environ.get("PYTHONPATH", ""))
    env = os.environ | {"TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "rubric.jsonl").write_text(f"{json.dumps(_RUBRIC)}\n" * 16)
        with serving(folder / "served", None, [f"{name}=tiny" for name in MODELS]) as (url, _):
            chosen = [name for name in PROGRAMS if args.only in name]
            ran = [run_against(url, name, folder, env) for name in chosen]
    sys.exit(not all(ran))


if __name__ == "__main__":
    main()
