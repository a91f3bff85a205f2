"""``rlc diff``: what differs between two recipes, plans or runs, by meaning."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.api import is_saved_plan, load
from rlc.cli.options import add_plan_options, changes_plan, recipe_of
from rlc.cli.output import UsageError, has_color, print_findings

if TYPE_CHECKING:
    from rlc.compile import CompileResult

HELP = "what differs between two recipes, plans or runs"
DESCRIPTION = (
    "Compare two recipes, saved plans or runs by what they do: values, formulas, graph, "
    "cost, and the sweeps of recipes. The options apply to the second; with one, it is "
    "compared with itself under the options. `rlc report` compares the results of two runs."
)
EPILOG = """\
examples:
  rlc diff recipes/quickstart.rl recipes/mixture.rl
  rlc diff recipes/sudoku.rl --set main.steps=50     with and without it
  rlc diff plan.json recipes/sudoku.rl               what changed since the plan was saved
  rlc diff runs/sudoku-1 runs/sudoku-2               the plans of two runs

exit status: 0 both do the same, 1 they differ, 2 errors
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", help="a recipe (.rl), a saved plan (.json) or a run")
    parser.add_argument("after", nargs="?", help="another (default: the first, with the options)")
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(error_status=2)


def run(args: argparse.Namespace) -> int:
    from rlc.explanation import diff_dict, diff_plans, diff_text

    changed, after = changes_plan(args), args.after or args.before
    if args.after is None and not changed:
        raise UsageError("give a second recipe, or something to --set")
    if changed and _is_plan(after):
        raise UsageError(f"{after} stays as it is: options apply to a recipe")
    old, new = _compiled(args.before), _compiled(after, args)
    if old.plan is None or new.plan is None:
        return 2
    both_recipes = not (_is_plan(args.before) or _is_plan(after))
    diff = diff_plans(old.plan, new.plan, (old.sweeps, new.sweeps) if both_recipes else ((), ()))
    names = (args.before, f"{after} with the options" if changed else after)
    if args.json:
        print(json.dumps(diff_dict(diff, *names), indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(diff_text(diff, *names, color=has_color(sys.stdout)))
    return 1 if diff else 0


def _is_plan(path: str) -> bool:
    """Return whether a path names a saved plan, or a run."""
    return is_saved_plan(path) or os.path.isdir(path)


def _compiled(path: str, args: argparse.Namespace | None = None) -> CompileResult:
    """Return a compiled recipe or a saved plan, stale or not. Print a recipe's errors."""
    if _is_plan(path):
        from rlc.compile import CompileResult, read_plan
        from rlc.lang import Diagnostics
        from rlc.report import read_plan as plan_of_run

        is_run = os.path.isdir(path)
        plan = plan_of_run(Path(path)) if is_run else read_plan(path).plan
        return CompileResult(plan, Diagnostics())
    compiled = (recipe_of(args, path) if args else load(path)).compile()
    if compiled.plan is None:
        print_findings(compiled.diagnostics)
    return compiled
