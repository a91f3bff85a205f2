"""``rlc diff``: what differs between two recipes or plans, by meaning."""

from __future__ import annotations

import argparse
import json
import sys

from rlc.api import is_saved_plan
from rlc.cli.options import add_plan_options, changes_plan, has_color, recipe_of, tell
from rlc.plan.records import Plan

SAME, DIFFERENT, ERROR = 0, 1, 2

_EPILOG = """\
examples:
  rlc diff recipes/quickstart.rl recipes/mixture.rl
  rlc diff recipes/sudoku.rl --set main.steps=50     with and without it
  rlc diff plan.json recipes/sudoku.rl               what changed since the plan was saved

exit status: 0 both do the same, 1 they differ, 2 errors
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "diff",
        help="what differs between two recipes or plans",
        description="Compare two recipes or saved plans by what they do: values, formulas, graph "
        "and cost. The options apply to the second, which is the first again where there is none.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", help="a recipe (.rl) or a saved plan (.json)")
    parser.add_argument("after", nargs="?", help="another (default: the first, with the options)")
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, error_status=ERROR)


def run(args: argparse.Namespace) -> int:
    from rlc.explanation.diff.compare import diff_plans
    from rlc.explanation.diff.text import diff_dict, diff_text

    changed, after = changes_plan(args), args.after or args.before
    if args.after is None and not changed:
        return tell("give a second recipe, or something to --set", ERROR)
    if changed and is_saved_plan(after):
        return tell(f"{after} stays as it is: options apply to a recipe", ERROR)
    old = _plan(args.before, _without_options(args))
    new = _plan(after, args)
    if old is None or new is None:
        return ERROR
    diff = diff_plans(old, new)
    names = (args.before, f"{after} with the options" if changed else after)
    if args.json:
        print(json.dumps(diff_dict(diff, *names), indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(diff_text(diff, *names, color=has_color(sys.stdout)))
    return DIFFERENT if diff else SAME


def _without_options(args: argparse.Namespace) -> argparse.Namespace:
    plain = argparse.Namespace(**vars(args))
    plain.overrides, plain.seed, plain.rehearse, plain.service = [], None, False, None
    return plain


def _plan(path: str, args: argparse.Namespace) -> Plan | None:
    """The plan of a recipe with options, or a saved one, stale or not; None after a report."""
    if is_saved_plan(path):
        from rlc.compile.saved import read_plan

        return read_plan(path).plan
    compiled = recipe_of(argparse.Namespace(**{**vars(args), "recipe": path})).compile()
    if compiled.plan is None:
        from rlc.lang.render import render_human

        sys.stderr.write(render_human(compiled.diagnostics, color=has_color(sys.stderr)))
    return compiled.plan
