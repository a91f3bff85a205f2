"""``rlc explain``: what a recipe would do, and what it would cost."""

from __future__ import annotations

import argparse
import json
import sys

from rlc.cli.options import add_plan_options, compile_plan, has_color

_EPILOG = """\
examples:
  rlc explain recipes/sudoku.rl
  rlc explain recipes/sudoku.rl --set main.steps=50
  rlc explain recipes/sudoku.rl --json > plan-review.json

exit status: 0 explained, 1 errors in the recipe, 2 usage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="show what a recipe would do and cost",
        description="Show every value of a recipe and its origin, the formulas, the graph of the "
        "job, and what it would cost. Nothing is run, fetched or paid for.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", help="the recipe (.rl), or -")
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rlc.lang.render import render_human
    from rlc.plan.explain import explain_dict, explain_text

    compiled = compile_plan(args)
    plan, found = compiled.plan, compiled.diagnostics
    if args.json:
        print(json.dumps(explain_dict(plan, args.recipe, found), indent=2, ensure_ascii=False))
    elif plan is None:
        sys.stderr.write(render_human(found, color=has_color(sys.stderr)))
    else:
        sys.stdout.write(explain_text(plan, found, color=has_color(sys.stdout)))
    return 1 if plan is None else 0
