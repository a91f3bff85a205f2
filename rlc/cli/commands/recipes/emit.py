"""``rlc emit``: the training job as a standalone Python script."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlc.cli.options import add_plan_options, recipe_of
from rlc.cli.output import print_error, print_findings

HELP = "write the training job as a standalone Python script"
DESCRIPTION = (
    "Write the training job of a recipe as a Python script that needs nothing of "
    "rlc: `tinker`, a readable loop on Tinker's SDK, which reproduces `rlc run` with the same "
    "seed; or `cookbook`, a configuration of tinker-cookbook's own loop."
)
EPILOG = """\
examples:
  rlc emit recipes/sudoku.rl -o train.py
  rlc emit recipes/sudoku.rl --set main.budget=none > train.py
  rlc emit recipes/mixture.rl --target cookbook -o train.py

exit status: 0 written, 1 mistakes in the recipe or a plan that the target cannot express, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="the recipe (.rl; - for standard input)")
    add_plan_options(parser)
    parser.add_argument("--target", choices=("tinker", "cookbook"), default="tinker")
    parser.add_argument("-o", "--output", type=Path, help="file to write (default: print it)")


def run(args: argparse.Namespace) -> int:
    """Write the script, and return the exit status."""
    from rlc.emit.write import emit

    compiled = recipe_of(args).compile()
    print_findings(compiled.diagnostics)
    if compiled.plan is None:
        return 1
    text = emit(compiled.plan, args.target, args.output.name if args.output else "train.py")
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        args.output.write_text(text, encoding="utf-8")
    except OSError as error:
        return print_error(f"cannot write {args.output}: {error.strerror}", 2)
    print(f"wrote {args.output}; run it with `python {args.output}`")
    return 0
