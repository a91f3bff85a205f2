"""``rlc explain``: what a recipe would do, and what it would cost; what a finding means."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.cli.options import (
    add_plan_options,
    changes_plan,
    has_color,
    recipe_of,
    tell,
)

if TYPE_CHECKING:
    from rlc.api import Explanation
    from rlc.plan.records import Plan
    from rlc.pricing.latencies import Latencies

_EPILOG = """\
examples:
  rlc explain recipes/sudoku.rl
  rlc explain recipes/sudoku.rl --set main.steps=50
  rlc explain recipes/sudoku.rl --json | jq .cost.total
  rlc explain recipes/sudoku.rl --graph mermaid
  rlc explain recipes/sudoku.rl --latency sampling=30s,training=5s
  rlc explain recipes/sudoku.rl --out plan.json    then: rlc run plan.json
  rlc explain plan.json                            a saved plan
  rlc explain RL0204                               what a finding means

exit status: 0 explained, 1 errors in the recipe, 2 usage
"""
_CODE = re.compile(r"RL\d{4}", re.IGNORECASE)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="show what a recipe would do and cost",
        description="Show every value of a recipe and its origin, the formulas, the graph of the "
        "job, and what it would cost. Nothing is run, fetched or paid for.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", help="the recipe (.rl), or -; a saved plan (.json); or a code")
    add_plan_options(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON")
    how.add_argument("--graph", choices=("mermaid", "dot"), help="print the job graph")
    parser.add_argument("--out", metavar="PLAN", help="also write the plan, for `rlc run PLAN`")
    parser.add_argument(
        "--latency",
        action="append",
        default=[],
        metavar="NODE=SECONDS,…|RUN",
        help="also predict how long a step takes, from how long its nodes do: sampling=30s, "
        "training=5s, or any node of the graph; or as the run in a folder has measured",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rlc.api import is_saved_plan

    if _CODE.fullmatch(args.recipe):
        if changes_plan(args) or args.json or args.graph or args.out or args.latency:
            return tell("the page of a code takes no options", 2)
        return _page(args.recipe.upper())
    saved = is_saved_plan(args.recipe)
    if saved and changes_plan(args):
        return tell("a saved plan stays as it is: give its recipe, to decide something else", 2)
    if saved and args.out:
        return tell(f"{args.recipe} is a saved plan already", 2)
    if args.out and args.recipe == "-":
        return tell("a plan is saved with the name of its recipe: give a file", 2)
    explanation = _saved(args.recipe) if saved else _recipe(args)
    if args.out and explanation.plan is not None and not _save(args):
        return 2
    if args.latency and explanation.plan is not None:
        explanation = evolve(explanation, latencies=_latencies(explanation.plan, args.latency))
    return _print(explanation, args)


def _print(explanation: Explanation, args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
    elif explanation.plan is None:
        sys.stderr.write(explanation.text(color=has_color(sys.stderr)))
    elif args.graph:
        sys.stdout.write(explanation.graph(args.graph))
    else:
        sys.stdout.write(explanation.text(color=has_color(sys.stdout)))
    return 1 if explanation.plan is None else 0


def _recipe(args: argparse.Namespace) -> Explanation:
    from rlc.api import Explanation

    compiled = recipe_of(args).compile()
    return Explanation(args.recipe, compiled.plan, compiled.diagnostics)


def _saved(path: str) -> Explanation:
    """A saved plan; a stale one is shown with what its recipe says by now."""
    from rlc.api import explain
    from rlc.compile.saved import read_plan, stale_lines

    saved = read_plan(path)
    if differences := stale_lines(path, saved):
        print(f"{path} is stale: its recipe now says something else", file=sys.stderr)
        print("\n".join(differences), file=sys.stderr)
    return explain(saved.plan)


def _latencies(plan: Plan, given: list[str]) -> Latencies:
    """Those of a run folder, or those that are written out. Raises LatencyError."""
    from rlc.pricing.latencies import LatencyError, declared_latencies, measured_latencies

    if any("=" in text for text in given):
        return declared_latencies(plan, given)
    if len(given) > 1:
        raise LatencyError("give the folder of one run")
    path = os.path.join(given[0], "timeline.jsonl")
    try:
        with open(path, encoding="utf-8") as file:
            return measured_latencies(plan, [json.loads(line) for line in file])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, LatencyError):
            raise
        raise LatencyError(f"{path} cannot be read as a run's timeline: {error}") from error


def _save(args: argparse.Namespace) -> bool:
    from rlc.compile.saved import PlanFileError

    try:
        recipe_of(args).save(args.out)
    except PlanFileError as error:
        tell(error.message)
        return False
    print(f"wrote {args.out}: `rlc run {args.out}` runs exactly this", file=sys.stderr)
    return True


def _page(code: str) -> int:
    """What a code of a finding means."""
    from rlc.check.suggest import known_values
    from rlc.lang.codes import CODES
    from rlc.lang.pages import page, render

    text = page(code)
    if text is None:
        return tell(f"there is no code {code}", 2, known_values(list(CODES), code))
    sys.stdout.write(render(text, has_color(sys.stdout)))
    return 0
