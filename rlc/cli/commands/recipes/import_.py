"""``rlc import``: a recipe out of another trainer's command line or configuration."""

from __future__ import annotations

import argparse
import sys

from rlc.cli.output import print_findings

SOURCES = (
    *("auto", "gem", "gem-cookbook", "openreward", "rllm"),
    *("trl-grpo", "trl-dpo", "trl-sft", "verl", "verl-sft"),
)
STDIN = "-"
MAX_BYTES = 1_000_000

HELP = "make a recipe of another trainer's command or configuration"
DESCRIPTION = (
    "Make a recipe of what you have: a training command of GEM, an OpenReward "
    "configuration, the Hydra options of rLLM and verl, a command, a configuration or a script "
    "of TRL (GRPO, DPO, SFT). Nothing of it is run."
)
EPILOG = """\
examples:
  rlc import -- python tinker_train.py env_id=game:Sudoku-v0-easy num_env=64 max_tokens=1024
  rlc import train.sh -o train.rl            a script with one training command
  rlc import tinker-config.yaml --overrides batch_size=64 learning_rate=2e-5
  rlc import -- python -m examples.solver_judge_tinker.train_solver_judge_flow_tinker \\
      model.name=Qwen/Qwen3-8B training.group_size=8
  rlc import --env 'problems(gsm8k)' rllm.yaml
  rlc import -- trl grpo --model_name_or_path Qwen/Qwen3-8B --num_generations 8 --beta 0.04
  rlc import run_qwen3-8b.sh                 one of verl's example scripts
  pbpaste | rlc import -

Every option is either in the recipe, or in a comment with the reason why not. What `rlc check`
finds in the recipe is printed too.

exit status: 0 done, 1 the input cannot become a recipe, or the recipe has errors, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a file, - for standard input, or a command with its options"
    parser.add_argument("input", nargs="+", metavar="FILE | -- COMMAND", help=text)
    text = "the trainer (default: auto)"
    parser.add_argument("--from", dest="source", choices=SOURCES, default="auto", help=text)
    parser.add_argument("-o", dest="output", metavar="OUT.rl", help="write there, not to stdout")
    text = "values that replace those of the file, as on the trainer's command line"
    parser.add_argument("--overrides", nargs="+", default=[], metavar="NAME=VALUE", help=text)
    text = "what an rLLM job plays, where that stands in its Python code only"
    parser.add_argument("--env", metavar="EXPRESSION", help=text)
    text = "put unknown options into a comment instead of stopping at the first"
    parser.add_argument("--keep-going", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    from rlc.compile import compile_source
    from rlc.imports import convert
    from rlc.lang import Source

    words = args.input
    is_file = len(words) == 1 and ("=" not in words[0] or words[0] == STDIN)
    job = convert.job_of_text(_read(words[0])) if is_file else convert.job_of_command(words)
    if job.config_path is not None:
        job = convert.with_config(job, _read(job.config_path))
    job = convert.with_overrides(job, args.overrides)
    source = None if args.source == "auto" else args.source
    text = convert.convert(job, source, args.env, args.keep_going)
    _write(text, args.output)
    found = compile_source(Source(args.output or "<import>", text)).diagnostics
    print_findings(found)
    return 1 if found.has_errors else 0


def _read(path: str) -> str:
    """Return the text of a file. Raise InputError if it cannot be read."""
    from rlc.imports.settings import InputError, shown

    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(f"{shown(path)} is over 1 MB", "is it a configuration?")
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        advice = "give a file, or a command after `--`"
        raise InputError(f"{shown(path)} cannot be read: {reason}", advice) from None


def _write(text: str, output: str | None) -> None:
    from rlc.imports.settings import InputError, shown

    if output is None:
        sys.stdout.write(text)
        return
    try:
        with open(output, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        message = f"{shown(output)} is there already"
        raise InputError(message, "give another name, or delete it first") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{shown(output)} cannot be written: {reason}", None) from None
