"""``rlc probe``: a few episodes with the real model, before a job is paid for."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from rlc.cli.options import add_base_url, add_plan_options, changes_plan, recipe_of, usd
from rlc.cli.output import UsageError, print_findings, redraws, standard_output_kept

if TYPE_CHECKING:
    from rlc.plan import Plan
    from rlc.proof import ProbeResult

HELP = "play a few episodes with the real model, and train nothing"
DESCRIPTION = (
    "Play a few episodes of each environment of a recipe with its real model and judges, within a "
    "small budget, and train nothing. Says whether there is anything to learn, what fails, and "
    "what the job will cost; `rlc explain` prices the recipe from what was seen from then on. What "
    "another probe of the same has played is not played again."
)
EPILOG = """\
examples:
  rlc probe recipes/quickstart.rl
  rlc probe recipes/sudoku.rl --budget 0.50
  rlc probe recipes/sudoku.rl --groups 4 --set main.sampling.max_tokens=2048
  rlc probe recipes/sudoku.rl --json | jq .cost
  rlc run recipes/sudoku.rl --probe              probe first, and stop if it finds a reason to

Its episodes are in a run folder: `rlc show` prints them.

exit status: 0 the job may be run; 1 nothing can be learnt, its budget would not last, or the probe
failed; 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="the recipe (.rl), or a saved plan (.json)")
    add_plan_options(parser)
    text = "how many groups of each environment are played, at most (default 16)"
    parser.add_argument("--groups", type=int, metavar="N", help=text)
    text = "what it may spend (default: the smaller of 1%% of the job's expected cost and $1)"
    parser.add_argument("--budget", type=usd, metavar="USD", help=text)
    text = "play, even if the same was played before"
    parser.add_argument("--fresh", action="store_true", help=text)
    add_base_url(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from rlc.api import is_saved_plan, load_plan

    if args.groups is not None and args.groups < 1:
        raise UsageError("--groups is at least 1")
    if is_saved_plan(args.recipe):
        if changes_plan(args):
            raise UsageError("a saved plan stays as it is: give its recipe, to decide otherwise")
        plan = load_plan(args.recipe)
    else:
        compiled = recipe_of(args).compile()
        print_findings(compiled.diagnostics)
        if compiled.plan is None:
            return 1
        plan = compiled.plan
    if args.json:
        with standard_output_kept():
            result = probed(plan, args)
        print(json.dumps(result.to_dict(), indent=2, ensure_ascii=False))
    else:
        result = probed(plan, args)
        print_probe(result)
    return int(bool(result.stops))


def probed(plan: Plan, args: argparse.Namespace) -> ProbeResult:
    """Probe a plan with the options of the command, and print how it goes on standard error."""
    import rlc
    from rlc.plan import elapsed
    from rlc.runtime import Observer

    shows, began = redraws(sys.stderr), time.monotonic()

    class Shown(Observer):
        def note(self, text: str) -> None:
            print(text, file=sys.stderr)

        def progress(self, done: int, planned: int) -> None:
            if shows:
                took = elapsed(time.monotonic() - began)
                print(f"\x1b[K{done:,} of {planned:,} groups, {took}", end="\r", file=sys.stderr)

        def close(self) -> None:
            if shows:
                print("\x1b[K", end="", file=sys.stderr)

    return rlc.probe(plan, args.groups, args.budget, args.base_url, args.fresh, Shown())


def print_probe(result: ProbeResult) -> None:
    """Print what a probe has found, what the job will cost, and whether it may be run."""
    from rlc.explanation import price
    from rlc.plan import in_dollars
    from rlc.pricing import LEVELS
    from rlc.proof import probe_lines

    for line in probe_lines(result):
        print(line)
    low, usual, high = (sum(one.tokens(level) for one in result.costs) for level in LEVELS)
    print(f"tokens: {usual:,.0f} expected, {low:,.0f} to {high:,.0f}")
    print(f"cost: {price(result.costs)}")
    spent = f"; it has spent {in_dollars(result.spent)}" if result.spent else ""
    known = "" if result.played else ", played before"
    print(f"episodes: {result.folder}{known}{spent}")
    if result.over_budget:
        print(f"error: {result.over_budget}")
