"""``rlc explain``: what a recipe would do, and what it would cost; what a finding means."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.cli.options import add_plan_options, add_reuse, changes_plan, recipe_of
from rlc.cli.output import UsageError, has_color, print_audit, print_findings

if TYPE_CHECKING:
    from rlc.api import Explanation
    from rlc.plan import Plan
    from rlc.pricing.critical_path import Latencies

HELP = "show what a recipe would do and cost"
DESCRIPTION = (
    "Show in a few lines what a recipe trains on what, how long, for how much, and what is unusual "
    "about it; with --full every value and its origin, the formulas, the graph of the job and the "
    "bill. Nothing is run, fetched or paid for."
)
EPILOG = """\
examples:
  rlc explain recipes/sudoku.rl
  rlc explain recipes/sudoku.rl --full --set main.steps=50
  rlc explain recipes/sudoku.rl --json | jq .cost.total
  rlc explain recipes/sudoku.rl --graph mermaid
  rlc explain recipes/sudoku.rl --compare          what it costs on each service
  rlc explain recipes/sudoku.rl --latency sampling=30s,training=5s
  rlc explain recipes/sudoku.rl --out plan.json    then: rlc run plan.json
  rlc explain recipes/sudoku.rl --diff main        what a change does to it
  rlc explain recipes/sudoku.rl --diff main --format github    the same, for a pull request
  rlc explain plan.json                            a saved plan
  rlc explain RL0204                               what a finding means

exit status: 0 explained, 1 errors in the recipe, 2 usage
"""
_CODE = re.compile(r"RL\d{4}", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="the recipe (.rl), or -; a saved plan (.json); or a code")
    add_plan_options(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--full", action="store_true", help="show everything, not a summary")
    how.add_argument("--json", action="store_true", help="print JSON")
    how.add_argument("--graph", choices=("mermaid", "dot"), help="print the job graph")
    text = "show what it costs on each service that can run it, and why the others cannot"
    parser.add_argument("--compare", action="store_true", help=text)
    parser.add_argument("--out", metavar="PLAN", help="also write the plan, for `rlc run PLAN`")
    add_reuse(parser, runs=False)
    text = "also predict how long a step takes, from how long its nodes do: sampling=30s, "
    text += "training=5s, or any node of the graph; or as the run in a folder has measured"
    metavar = "NODE=SECONDS,…|RUN"
    parser.add_argument("--latency", action="append", default=[], metavar=metavar, help=text)
    text = "show what differs from a commit or branch, another recipe, a saved plan or a run"
    parser.add_argument("--diff", metavar="BASE", help=text)
    text = "of --diff: text, or a comment for a pull request"
    parser.add_argument("--format", choices=("text", "github"), default="text", help=text)


def run(args: argparse.Namespace) -> int:
    from rlc.api import is_saved_plan, reused

    if is_code(args.recipe):
        given = args.full, args.json, args.graph, args.out, args.latency, args.compare, args.diff
        if changes_plan(args) or any(given):
            raise UsageError("the page of a code takes no options")
        sys.stdout.write(page_of(args.recipe, has_color(sys.stdout)))
        return 0
    if args.compare and (args.full or args.graph or args.latency):
        raise UsageError("--compare is another text: give it alone, or with --json")
    if args.format != "text" and (args.diff is None or args.json):
        raise UsageError("--format github is a form of --diff: give a BASE, and no --json")
    if args.diff is not None:
        return _show_change(args)
    saved = is_saved_plan(args.recipe)
    if saved and changes_plan(args):
        raise UsageError("a saved plan stays as it is: give its recipe, to decide something else")
    if saved and args.out:
        raise UsageError(f"{args.recipe} is a saved plan already")
    if args.out and args.recipe == "-":
        raise UsageError("a plan is saved with the name of its recipe: give a file")
    explanation = _explanation(args, saved)
    if args.reuse_from:
        explanation = evolve(explanation, reused=reused(explanation.plan, args.reuse_from))
    if args.out and explanation.plan is not None:
        from rlc.compile import PlanFileError

        try:
            recipe_of(args).save(args.out)
        except PlanFileError as error:
            raise UsageError(error.message) from error
        runs = f"`{shlex.join(['rlc', 'run', str(args.out)])}` runs exactly this"
        print(f"wrote {args.out}: {runs}", file=sys.stderr)
    if args.latency and explanation.plan is not None:
        explanation = evolve(explanation, latencies=_latencies(explanation.plan, args.latency))
    if args.compare and explanation.plan is not None:
        from rlc.explanation import offers_dict, offers_text

        if args.json:
            print(json.dumps(offers_dict(explanation.plan), indent=2, ensure_ascii=False))
        else:
            sys.stdout.write(offers_text(explanation.plan, has_color(sys.stdout)))
    elif args.json:
        print(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
    elif explanation.plan is None:
        sys.stderr.write(explanation.text(color=has_color(sys.stderr)))
    elif args.graph:
        sys.stdout.write(explanation.graph(args.graph))
    else:
        sys.stdout.write(explanation.text(has_color(sys.stdout), args.full))
        print_audit(explanation.plan)
    return int(explanation.diagnostics.has_errors)


def _show_change(args: argparse.Namespace) -> int:
    """Print what differs from an earlier version of the recipe."""
    others = args.full, args.graph, args.out, args.latency, args.compare
    if any(others) or args.recipe == "-" or args.recipe.endswith(".json"):
        raise UsageError("--diff is for the recipe in a file, and another text: give it alone")
    import rlc

    change = rlc.change_since(recipe_of(args), args.diff)
    if args.json:
        print(json.dumps(change.to_dict(), indent=2, ensure_ascii=False))
    elif args.format == "github":
        sys.stdout.write(change.markdown())
    else:
        print_findings(change.diagnostics)
        sys.stdout.write(change.text(has_color(sys.stdout)))
        print_audit(change.plan)
    return int(change.diagnostics.has_errors)


def _explanation(args: argparse.Namespace, saved: bool) -> Explanation:
    """Explain a recipe, or a saved plan; print how its recipe has changed since."""
    from rlc.api import explain
    from rlc.compile import read_plan, stale_lines

    if not saved:
        return recipe_of(args).explain()
    plan = read_plan(args.recipe)
    if differences := stale_lines(plan):
        print(f"{args.recipe} is stale: its recipe now says something else", file=sys.stderr)
        print("\n".join(differences), file=sys.stderr)
    return explain(plan.plan)


def _latencies(plan: Plan, given: list[str]) -> Latencies:
    """Return the latencies written out, or those of a run's folder. May raise LatencyError."""
    from rlc.pricing.critical_path import LatencyError, declared_latencies, measured_latencies

    if any("=" in text for text in given):
        return declared_latencies(plan, given)
    if len(given) > 1:
        raise LatencyError("give the folder of one run")
    path = os.path.join(given[0], "timeline.jsonl")
    try:
        with open(path, encoding="utf-8") as file:
            return measured_latencies(plan, [json.loads(line) for line in file])
    except LatencyError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LatencyError(f"{path} cannot be read as a run's timeline: {error}") from error


def is_code(text: str) -> bool:
    """Return whether a text looks like the code of a finding."""
    return _CODE.fullmatch(text) is not None


def page_of(code: str, color: bool = False) -> str:
    """Return the page of a code. Raise UsageError if there is no such code."""
    from rlc.check import known_values
    from rlc.lang import code_titles, page, render_page

    code = code.upper()
    text = page(code)
    if text is None:
        raise UsageError(f"there is no code {code}", known_values(list(code_titles()), code))
    return render_page(text, color)
