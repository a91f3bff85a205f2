"""``rlc emit``: a job as a folder that runs anywhere, or as one Python script."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.cli.options import add_plan_options, changes_plan, recipe_of
from rlc.cli.output import UsageError, print_findings

if TYPE_CHECKING:
    from rlc.compile import CompileResult

HELP = "write a job as a folder that runs on any machine, or as one Python script"
DESCRIPTION = (
    "Write a job, to run it elsewhere. `--target job` writes a folder with the plan, the files "
    "that it reads, its packages and one command that runs it or goes on with it; it takes any "
    "plan, and sweeps. `--target script` writes one readable program on Tinker's SDK that needs "
    "nothing of rlc, of plans that fit one: with the same seed it repeats `rlc run`."
)
EPILOG = """\
examples:
  rlc emit recipes/judged.rl -o jobs/judged            a folder: cd jobs/judged && python run.py
  rlc emit recipes/learning_rates.rl --sweep -o jobs/rates
  rlc emit recipes/sudoku.rl --service skyrl --server megatron -o jobs/sudoku
  rlc emit recipes/sudoku.rl --set main.budget=none -o train.py        a script
  rlc emit recipes/sudoku.rl --target script > train.py

exit status: 0 written, 1 mistakes in the recipe or a plan that cannot be written so, 2 usage
"""
_GONE = (
    "--target cookbook is gone: the loop of tinker-cookbook has neither seeds nor budgets, and one "
    "advantage, so few plans fitted it"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "the recipe (.rl; - for standard input) or saved plan (.json)"
    parser.add_argument("recipe", help=text)
    add_plan_options(parser)
    targets = ("job", "script", "tinker", "cookbook")
    text = "what to write (default: a script if FILE ends in .py, is - or left out, else a job)"
    parser.add_argument("--target", metavar="{job,script}", choices=targets, help=text)
    text = "folder or file to write (- or left out: a script is printed)"
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help=text)
    text = "the job runs a sweep of the recipe (its name, if there are several)"
    parser.add_argument("--sweep", metavar="NAME", nargs="?", const="", help=text)
    text = "the job starts a server of SkyRL beside itself, with this engine: fsdp, megatron or jax"
    parser.add_argument("--server", metavar="ENGINE", help=text)
    text = "a file or folder that the job takes along, besides those that the recipe and its "
    text += "Python code name"
    parser.add_argument(
        "--include", metavar="PATH", type=Path, action="append", default=[], help=text
    )


def run(args: argparse.Namespace) -> int:
    if args.target == "cookbook":
        advice = "--target script writes a loop on the SDK, --target job any plan"
        raise UsageError(_GONE, advice)
    if args.target == "tinker":  # its former name
        print("warning: --target tinker is called --target script", file=sys.stderr)
        args.target = "script"
    if args.output == Path("-"):  # standard output, as `-` is standard input for a recipe
        args.output = None
    is_script = args.output is None or args.output.suffix == ".py"
    target = args.target or ("script" if is_script else "job")
    if target == "job" and args.output is None:
        raise UsageError("a job is a folder: say where with -o DIR")
    if target == "script" and (args.sweep is not None or args.include or args.server):
        option = "--include" if args.include else "--server" if args.server else "--sweep"
        raise UsageError(f"{option} is for --target job: a script is one run in one file")
    compiled = _compiled(args)
    print_findings(compiled.diagnostics)
    if compiled.plan is None:
        return 1
    from rlc.emit.errors import EmitError

    try:
        return _write_job(compiled, args) if target == "job" else _write_script(compiled, args)
    except EmitError as error:
        print_findings(error.diagnostics)
        return 1


def _compiled(args: argparse.Namespace) -> CompileResult:
    """Return the compiled recipe or the saved plan. Raise UsageError if options would change it."""
    from rlc.api import is_saved_plan, load_plan

    if not is_saved_plan(args.recipe):
        return recipe_of(args).compile()
    if changes_plan(args) or args.sweep is not None:
        raise UsageError("a saved plan is written as it is: give its recipe for other options")
    from rlc.compile import CompileResult
    from rlc.lang import Diagnostics

    return CompileResult(load_plan(args.recipe), Diagnostics())


def _write_job(compiled: CompileResult, args: argparse.Namespace) -> int:
    from rlc.compile import find_sweep
    from rlc.emit.job.folder import emit_job

    assert compiled.plan is not None
    sweep = None
    if args.sweep is not None:
        sweep = find_sweep(compiled.sweeps, args.sweep or None, compiled.plan.recipe)
    options = recipe_of(args).options()
    made = emit_job(compiled, args.output, options, sweep, args.include, args.server)
    print(f"wrote {made.folder}: {len(made.files)} files, {made.size / 1e6:,.1f} MB")
    for name in made.files:
        if name.startswith("recipe/"):
            print(f"  {name}")
    if made.needs:
        print(f"it needs {', '.join(made.needs)} in the environment")
    if sweep is None and compiled.sweeps:
        names = ", ".join(f"`{one.plan.name}`" for one in compiled.sweeps)
        print(f"it runs the recipe alone; --sweep NAME writes a sweep of it ({names})")
    how = "sky launch sky.yaml" if args.server else "python3 run.py"
    print(f"run it with: cd {made.folder} && {how}")
    return 0


def _write_script(compiled: CompileResult, args: argparse.Namespace) -> int:
    from rlc.emit.script.program import script

    assert compiled.plan is not None
    text = script(compiled.plan, str(args.output or "train.py"))
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        args.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {args.output}: {error.strerror}") from error
    print(f"wrote {args.output}; run it with `python {args.output}`")
    return 0
