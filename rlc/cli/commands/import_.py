"""``rlc import``: a recipe out of another trainer's command line or configuration."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rlc.cli.options import has_color

if TYPE_CHECKING:
    from rlc.imports.convert import Job

SOURCES = ("auto", "gem", "gem-cookbook", "openreward", "rllm")
STDIN = "-"
MAX_BYTES = 1_000_000

_EPILOG = """\
examples:
  rlc import -- python tinker_train.py env_id=game:Sudoku-v0-easy num_env=64 max_tokens=1024
  rlc import train.sh -o train.rl            a script with one training command
  rlc import tinker-config.yaml --overrides batch_size=64 learning_rate=2e-5
  rlc import -- python -m examples.solver_judge_tinker.train_solver_judge_flow_tinker \\
      model.name=Qwen/Qwen3-8B training.group_size=8
  rlc import --env 'problems("gsm8k")' rllm.yaml
  pbpaste | rlc import -

Every option is either in the recipe, or in a comment with the reason why not. What `rlc check`
finds in the recipe is printed too.

exit status: 0 done, 1 the input cannot become a recipe, or the recipe has errors, 2 usage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "import",
        help="make a recipe of another trainer's command or configuration",
        description="Make a recipe of what you have: a training command of GEM, an OpenReward "
        "configuration, the Hydra options of rLLM. Nothing of it is run.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "input",
        nargs="+",
        metavar="FILE | -- COMMAND",
        help="a file, - for standard input, or a command with its options",
    )
    parser.add_argument(
        "--from", dest="source", choices=SOURCES, default="auto", help="the trainer (default: auto)"
    )
    parser.add_argument("-o", dest="output", metavar="OUT.rl", help="write there, not to stdout")
    parser.add_argument(
        "--overrides",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="values that replace those of the file, as on the trainer's command line",
    )
    parser.add_argument(
        "--env",
        metavar="EXPRESSION",
        help="what an rLLM job plays, where that stands in its Python code only",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="put unknown options into a comment instead of stopping at the first",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Convert, write, and say what a check of the recipe finds; the exit status."""
    from rlc.imports.convert import convert, with_overrides

    job = with_overrides(_job(args.input), args.overrides)
    source = None if args.source == "auto" else args.source
    text = convert(job, source, args.env, args.keep_going)
    _write(text, args.output)
    return _check(text, args.output or "<import>")


def _job(words: list[str]) -> Job:
    from rlc.imports.convert import job_of_command, job_of_text, with_config

    single = words[0]
    is_file = len(words) == 1 and ("=" not in single or single == STDIN)
    job = job_of_text(_read(single)) if is_file else job_of_command(words)
    return with_config(job, _read(job.config_path)) if job.config_path is not None else job


def _read(path: str) -> str:
    """The text of a file. Raises InputError where there is none."""
    from rlc.imports.settings import InputError
    from rlc.imports.shown import shown

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
    from rlc.imports.settings import InputError
    from rlc.imports.shown import shown

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


def _check(text: str, name: str) -> int:
    """Print what a check finds in the recipe; 1 where it has errors."""
    from rlc.compile.recipe import compile_source
    from rlc.lang.render import render_human
    from rlc.lang.source import Source

    found = compile_source(Source(name, text)).diagnostics
    if found:
        sys.stderr.write(render_human(found, has_color(sys.stderr)))
    return 1 if found.has_errors else 0
