"""``rlc sweep``: run the trials that a sweep of a recipe declares, or go on with them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.cli.options import add_base_url, add_plan_options, add_reuse, changes_plan, recipe_of
from rlc.cli.output import UsageError, print_findings, print_left_out, redraws

if TYPE_CHECKING:
    from rlc.compile import Sweep
    from rlc.sweeps import SweepRun, SweepSummary

HELP = "run the trials of a sweep and compare them"
DESCRIPTION = (
    "Run what a `sweep` of a recipe declares: each of its configurations with each of its seeds, "
    "several at once where the service bears it, under one budget."
)
EPILOG = """\
examples:
  rlc sweep recipes/learning_rates.rl
  rlc sweep recipes/learning_rates.rl rates --dry-run      its trials and their price
  rlc sweep recipes/learning_rates.rl --rehearse           a few small ones, without a key
  rlc sweep --resume runs/learning_rates-rates-20261121-093000

Ctrl-C ends each running trial after its step, with a checkpoint; `--resume` goes on with them, with
those that failed, and with those that were not begun, and runs none twice.

exit status: 0 all trials or the budget have ended, 1 some failed or none has finished, 2 usage,
3 with --strict a claim does not hold or cannot be told, 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", help="the recipe (.rl)")
    parser.add_argument("name", nargs="?", help="its sweep, if it has several")
    add_plan_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="list the trials and their price")
    text = "trials at once (default 4 on a service, 1 on this machine)"
    parser.add_argument("--jobs", type=int, metavar="N", help=text)
    text = "folder of the sweep (default runs/RECIPE-SWEEP-TIME)"
    parser.add_argument("--run-dir", type=Path, help=text)
    text = "go on with the sweep in a folder"
    parser.add_argument("--resume", metavar="SWEEP", type=Path, help=text)
    add_reuse(parser)
    add_base_url(parser)
    parser.add_argument("--quiet", action="store_true", help="show errors and the result only")
    text = "end with status 3 unless every claim of the sweep holds"
    parser.add_argument("--strict", action="store_true", help=text)
    text = "print the result as JSON, and nothing else"
    parser.add_argument("--json", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs is at least 1")
    decides = args.recipe or args.run_dir or args.dry_run or args.fresh or args.reuse_from
    if args.resume and (decides or changes_plan(args)):
        alone = "give --resume alone (or with --jobs, --base-url, --quiet)"
        raise UsageError(f"a sweep is gone on with as it was begun: {alone}")
    if not args.resume and not args.recipe:
        raise UsageError("give a recipe, or --resume with the folder of a sweep")
    from rlc.sweeps import compiled_again, open_sweep, reopen_sweep

    if args.resume:
        compiled, name = compiled_again(args.resume)
    else:
        compiled, name = recipe_of(args).compile(), args.name
    if not ((args.quiet or args.json) and compiled.plan):
        print_findings(compiled.diagnostics)
    print_left_out(compiled.plan)
    if compiled.plan is None:
        return 1
    from rlc.compile import find_sweep

    sweep = find_sweep(compiled.sweeps, name, compiled.plan.recipe)
    if args.dry_run:
        return _list(sweep)
    if args.resume:
        made = reopen_sweep(args.resume, compiled.plan, sweep, args.base_url, args.jobs)
    else:
        options = recipe_of(args).options()
        where = args.run_dir, args.base_url, args.jobs
        made = open_sweep(compiled.plan, sweep, options, *where, args.fresh, args.reuse_from)
    return _run(made, args)


def _list(sweep: Sweep) -> int:
    """Print the trials of a sweep, as far as they are known, and what they cost."""
    from itertools import islice

    from rlc.explanation import sweep_lines
    from rlc.lang.render import Paint
    from rlc.plan import Trial

    print("\n".join(sweep_lines(sweep, Paint())))
    if sweep.plan.search.n is not None:
        print("\n  its configurations are sampled when it runs")
        return 0
    print("\n  trials")
    for number, configuration in enumerate(islice(sweep.configurations(), sweep.size), 1):
        for seed in sweep.seeds:
            trial = Trial(number, configuration, seed)
            values = "  ".join(f"{path} = {text}" for path, text in configuration.items())
            print(f"    {number:>4}  seed {seed}  {trial.id}  {values}")
    return 0


def _run(made: SweepRun, args: argparse.Namespace) -> int:
    from rich.console import Console

    from rlc.cli.sweep_table import LiveSweep, PlainSweep, print_result
    from rlc.runtime import command
    from rlc.sweeps import SweepObserver, summary_dict

    console = Console(highlight=False)
    shown = LiveSweep if redraws(sys.stdout) else PlainSweep
    made.observer = SweepObserver() if args.quiet or args.json else shown(console)
    summary = _interruptible(made)
    if args.json:
        print(json.dumps(summary_dict(summary), indent=2))
    else:
        print_result(console, summary)
    if not args.json and (summary.state != "finished" or summary.failed):
        again = command("sweep --resume", summary.folder)
        console.print(f"go on with: {again}", soft_wrap=True, markup=False)
    failed = bool(summary.failed) or summary.best is None
    if summary.state == "interrupted":
        return 130
    undecided = args.strict and any(claim.verdict != "holds" for claim in summary.claims)
    return 1 if failed else 3 if undecided else 0


def _interruptible(made: SweepRun) -> SweepSummary:
    """Run a sweep. Ctrl-C once finishes the running steps and saves; twice stops now."""
    from rlc.sweeps import run_to_end

    pressed = 0

    def interrupt(*_: object) -> None:
        nonlocal pressed
        pressed += 1
        if pressed == 1:
            made.observer.note("stopping after the running steps; Ctrl-C again: now")
            made.stop()
        else:
            made.cancel()

    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    usual = {name: signal.signal(name, interrupt) for name in names}
    try:
        return run_to_end(made)
    finally:
        for name, handler in usual.items():
            signal.signal(name, handler)
