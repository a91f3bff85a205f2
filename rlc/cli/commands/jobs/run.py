"""``rlc run``: run a recipe, or resume a run."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sqlite3
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.cli.options import add_base_url, add_plan_options, add_reuse, changes_plan, recipe_of
from rlc.cli.output import (
    UsageError,
    announced,
    print_audit,
    print_findings,
    print_left_out,
    redraws,
)
from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.plan import Plan, PlayersPlan
    from rlc.runtime import Job, RunFolder, Summary

HELP = "run the training job of a recipe"
DESCRIPTION = "Run the training job of a recipe, exactly as `rlc explain` shows it."
EPILOG = """\
examples:
  rlc run recipes/quickstart.rl
  rlc run recipes/quickstart.rl --set main.steps=10 --seed 2
  rlc run recipes/sudoku.rl --rehearse
  rlc run recipes/solver_judge.rl --only untrained    one stage of several
  rlc run recipes/two_stages.rl --from hard           on what an earlier run has left
  rlc run recipes/quickstart.rl --fresh               with nothing of earlier runs
  rlc run recipes/sudoku.rl --probe                   a few episodes first
  rlc run --resume runs/quickstart-20261121-093000

exit status: 0 finished or stopped at the budget, 1 failed or nothing learnt, 2 usage,
3 finished, but something fails that the recipe expects, 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rlc.runtime import USUAL

    parser.add_argument("recipe", nargs="?", help="the recipe (.rl), or a saved plan (.json)")
    add_plan_options(parser)
    text = "run this stage and no other; what it goes on from is taken from an earlier run; may be "
    text += "repeated"
    parser.add_argument("--only", metavar="STAGE", action="append", default=[], help=text)
    text = "run this stage and those after it; those before it are taken from an earlier run"
    parser.add_argument("--from", dest="first", metavar="STAGE", help=text)
    add_reuse(parser)
    parser.add_argument("--run-dir", type=Path, help="folder of the run (default runs/NAME-TIME)")
    parser.add_argument("--resume", metavar="RUN", type=Path, help="go on with the run in a folder")
    text = "a name for the run, to find it by (`rlc runs --tag NAME`); may be repeated"
    parser.add_argument(
        "--tag", dest="tags", metavar="NAME", action="append", default=[], help=text
    )
    text = f"of how many episodes of a step single tokens are kept (default {USUAL}); or all, 0"
    parser.add_argument("--tokens", metavar="N", type=_tokens, help=text)
    text = (
        "who plays the episodes, whatever the recipe says: `here`, a number of processes of this "
        "machine, or `ray:N` for actors of the cluster of RAY_ADDRESS; no result depends on it"
    )
    parser.add_argument("--players", metavar="WHO", type=_players, help=text)
    text = (
        "probe first (`rlc probe`), and stop if nothing can be learnt or the budget would not last"
    )
    parser.add_argument("--probe", action="store_true", help=text)
    add_base_url(parser)
    parser.add_argument("--quiet", action="store_true", help="show errors and the result only")


def _tokens(text: str) -> str:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of episodes nor `all`")
    return text


def _players(text: str) -> PlayersPlan:
    from rlc.plan import PlayersPlan

    kind, _, count = text.rpartition(":")
    if text == "here":
        return PlayersPlan("here")
    if kind in ("", "processes", "ray") and count.isdecimal() and int(count) > 0:
        return PlayersPlan("ray" if kind == "ray" else "processes", int(count))
    raise argparse.ArgumentTypeError(f"{text!r} is not `here`, a number, or `ray:N`")


def run(args: argparse.Namespace) -> int:
    _check_usage(args)
    folder = None
    try:
        plan, own = _plan(args) if args.recipe else (None, None)
        if plan is None and args.recipe:
            return 1
        if args.probe and plan is not None and not _may_run(plan, args):
            return 1
        with announced("opening the run", args.quiet):
            from rlc.runtime import open_run, resume_run

            if args.resume:
                folder = resume_run(args.resume, plan)
            else:
                assert plan is not None
                given = args.run_dir, args.base_url, args.fresh, args.reuse_from
                folder = open_run(plan, *given, own=own)
        folder.add_tags(args.tags)
        if args.tokens is not None:
            folder.keep_tokens(None if args.tokens == "all" else int(args.tokens))
        folder.players = args.players
        return run_folder(folder, args)
    except KeyboardInterrupt:
        if folder is not None:
            print(f"stopped; {_how_to_resume(folder)}")
        return 130
    except Error as error:
        if folder is not None and folder.close_failed():
            error.add_note(f"what was done is kept; {_how_to_resume(folder)}")
        raise
    except (OSError, sqlite3.Error) as error:
        place = folder.path if folder else args.resume or "the run folder"
        advice = "see to the room on its disk, and to its permissions"
        failure = Error(f"cannot read or write {place}: {error}", advice)
        if folder is not None and folder.close_failed():
            failure.add_note(f"what was done is kept; {_how_to_resume(folder)}")
        raise failure from error
    except Exception as error:
        if folder is None:
            raise
        log = folder.path / "crash.log"
        log.write_text(traceback.format_exc(), encoding="utf-8")
        failure = Error(f"rlc itself failed; {log} holds the details")
        failure.add_note(f"what was done is kept; {_how_to_resume(folder)}")
        raise failure from error
    finally:
        if folder is not None:
            folder.close()


def _check_usage(args: argparse.Namespace) -> None:
    if odd := [tag for tag in args.tags if not tag or any(map(str.isspace, tag))]:
        raise UsageError(f"--tag {odd[0]!r} is no name: give one without spaces")
    if args.resume:
        from rlc.sweeps import is_sweep

        if args.probe:
            raise UsageError("--probe is for a run that has not begun")

        if is_sweep(args.resume):
            again = f"`rlc sweep --resume {args.resume}` goes on with it"
            raise UsageError(f"{args.resume} is a sweep: {again}")
        chosen = args.only or args.first or changes_plan(args)
        if args.run_dir or args.fresh or args.reuse_from or (chosen and not args.recipe):
            alone = "give --resume alone (or with --base-url, --players, --quiet, --tag, --tokens)"
            raise UsageError(f"a resumed run keeps its plan: {alone}")
    elif args.only and args.first:
        raise UsageError("--only names stages, --from the first of all that are run: give one")
    elif not args.recipe:
        raise UsageError("give a recipe, or --resume with the folder of a run")
    elif args.recipe.endswith(".json") and changes_plan(args):
        raise UsageError("a saved plan is run as it is: give its recipe, to decide something else")


def _plan(args: argparse.Namespace) -> tuple[Plan | None, list[str] | None]:
    """Return the plan of the recipe, or the saved one, and which of its stages may be run, None for
    all; no plan if it has errors, which are printed."""
    from rlc.api import is_saved_plan, load_plan
    from rlc.compile import chosen_stages, only

    if is_saved_plan(args.recipe):
        plan: Plan | None = load_plan(args.recipe)
    else:
        with announced(f"reading {args.recipe}", args.quiet):
            compiled = recipe_of(args).compile()
        plan = compiled.plan
        if not (args.quiet and plan):
            print_findings(compiled.diagnostics)
            print_audit(plan)
        print_left_out(plan)
    if plan is None or not (args.only or args.first):
        return plan, None
    own = chosen_stages(plan, args.only, args.first)
    return only(plan, own), own


def _may_run(plan: Plan, args: argparse.Namespace) -> bool:
    """Probe a plan, print what was found, and return whether it may be run."""
    from rlc.cli.commands.recipes.probe import print_probe, probed
    from rlc.cli.output import print_error

    usual = argparse.Namespace(groups=None, budget=None, fresh=False, base_url=args.base_url)
    result = probed(plan, usual)
    if not args.quiet:
        print_probe(result)
    if result.stops:
        print_error("not run, and nothing trained", 1, *result.stops)
    return not result.stops


def run_folder(folder: RunFolder, args: argparse.Namespace) -> int:
    with announced("opening the run", args.quiet, in_logs=True):
        import rlc.service.engine  # noqa: F401, I001 (before anything imports torch)
        from rich.console import Console

        from rlc.cli.live.observers import LiveObserver, PlainObserver, QuietObserver
        from rlc.cli.summary import print_summary
        from rlc.runtime import NOTHING_LEARNT, Job, Observer, connect_run

    class LastingConsole(Console):
        """Goes quiet when its reader goes away: a closed pager must not end a run."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    console = LastingConsole()
    observer: Observer = QuietObserver()
    if not args.quiet and redraws(sys.stdout):
        observer = live = LiveObserver(console, folder.plan, folder.path)
        hosted = any(stage.model.hosted for stage in folder.plan.stages)
        live.open(f"opening the {'service' if hosted else 'embedded engine'}")
    elif not args.quiet:
        observer = PlainObserver(console, folder.plan, folder.path)
    try:
        with _interrupts_held_back():
            service = connect_run(folder, args.base_url, resumed=bool(args.resume))
        summary = asyncio.run(_interruptible(Job(folder, service, observer)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        observer.close()
        text = f"stopped; {_how_to_resume(folder)}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        return 130
    finally:
        observer.close()
    # The run is over and saved. Another Ctrl-C must not take away how it goes on.
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        print_summary(console, summary)
    finally:
        signal.signal(signal.SIGINT, usual)
    ended = 3 if summary.unmet else 0
    statuses = {"finished": ended, "budget": ended, "interrupted": 130, NOTHING_LEARNT: 1}
    return statuses[summary.state]


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let Ctrl-C take effect after the block; an interrupted import of torch ends the process."""
    pressed = False

    def hold_back(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    usual = signal.signal(signal.SIGINT, hold_back)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if pressed:
        raise KeyboardInterrupt


async def _interruptible(job: Job) -> Summary:
    """Run a job. Ctrl-C once finishes the step and saves; twice stops at the last checkpoint."""
    task = asyncio.ensure_future(job.run())
    loop, pressed = asyncio.get_running_loop(), 0

    def interrupt() -> None:
        nonlocal pressed
        pressed += 1
        if pressed == 1:
            job.stop()
            job.observer.note("stopping after this step, with a checkpoint; Ctrl-C again: now")
        else:
            task.cancel()

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, interrupt)
    return await task


def _how_to_resume(folder: RunFolder) -> str:
    from rlc.runtime import command

    return f"go on with: {command('run --resume', folder.path)}"
