"""``rlc explain``: what a recipe would do, and what it would cost."""

from __future__ import annotations

import argparse
import json
import sys

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
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="override a param (learning_rate=1e-4) or a field (main.steps=10)",
    )
    parser.add_argument("--seed", type=int, help="seed of every random choice (default 1)")
    parser.add_argument(
        "--rehearse", action="store_true", help="explain the rehearsal instead of the job"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rlc.lang.render import render_human
    from rlc.plan.compile import load
    from rlc.plan.explain import explain_dict, explain_text
    from rlc.plan.rehearse import rehearse

    compiled = load(args.recipe, args.overrides, args.seed)
    plan, found = compiled.plan, compiled.diagnostics
    if plan is not None and args.rehearse:
        plan = rehearse(plan)
    if args.json:
        print(json.dumps(explain_dict(plan, args.recipe, found), indent=2, ensure_ascii=False))
    elif plan is None:
        sys.stderr.write(render_human(found, color=sys.stderr.isatty()))
    else:
        sys.stdout.write(explain_text(plan, found, color=sys.stdout.isatty()))
    return 1 if plan is None else 0
