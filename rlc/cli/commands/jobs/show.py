"""``rlc show``: the episodes of a run, to read."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.cli.matches import games_of, is_match, match_lines, match_of
from rlc.cli.output import print_error
from rlc.cli.transcripts import causes, system_messages, transcript

if TYPE_CHECKING:
    from rich.console import Console

    from rlc.plan import Plan
    from rlc.report.episodes import EpisodeFilter
    from rlc.runtime import Record

HELP = "print episodes, or compared replies, of a run, or browse them"
DESCRIPTION = (
    "Print episodes of a run: what the environment said, what the model did, "
    "rewards and advantages. By default, of each environment the best, the median and the "
    "worst of the last step, and its failures. Of a stage that learns from preferences the replies "
    "that it compared, with their rewards. With --browse, or without RUN in a terminal, a "
    "browser of runs and their episodes."
)
EPILOG = """\
examples:
  rlc show --browse                                    walk through the runs in runs/
  rlc show runs/sudoku-20261121-093000 --browse        ... through one; ? lists the keys
  rlc show runs/sudoku-20261121-093000                 best, median and worst of the last step
  rlc show runs/sudoku-20261121-093000 --step 40 --env sudoku
  rlc show runs/sudoku-20261121-093000 --step 40 --task 7      a whole group
  rlc show runs/sudoku-20261121-093000 --row gsm-17            one row of data, at every step
  rlc show runs/sudoku-20261121-093000 --failed --limit 3      what went wrong
  rlc show runs/sudoku-20261121-093000 --tokens ratio          how likely single tokens became
  rlc show runs/sudoku-20261121-093000 --json | jq .reward

exit status: 0 shown, 1 no such run or episode, 2 usage
"""
_LIMIT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dir",
        metavar="RUN",
        nargs="?",
        type=Path,
        help="the folder of the run; with --browse also a folder of runs (default runs)",
    )
    parser.add_argument(
        "--browse", action="store_true", help="walk through it, also while the run goes on"
    )
    parser.add_argument("--stage", help="a stage (default: the one that trained last)")
    parser.add_argument("--step", type=int, help="a step (default: the last)")
    parser.add_argument("--env", help="an environment (default: all)")
    parser.add_argument("--task", type=int, help="a task: its whole group")
    parser.add_argument("--member", type=int, help="a member of its group")
    parser.add_argument("--row", metavar="ID", help="the row of data with that id, or place")
    parser.add_argument("--failed", action="store_true", help="only those that failed, of any step")
    parser.add_argument(
        "--limit", type=_positive, help=f"at most so many, in their order (default {_LIMIT})"
    )
    parser.add_argument(
        "--tokens",
        choices=("advantage", "ratio"),
        help="colour the tokens that were trained on by that; listed where there is no colour",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def run(args: argparse.Namespace) -> int:
    if args.browse or args.run_dir is None:
        return _browse(args)
    from rich.console import Console

    from rlc.cli.comparisons import show_comparisons
    from rlc.plan import is_training
    from rlc.report import read_plan
    from rlc.runtime import read_failures, read_metrics
    from rlc.sweeps import TRIALS, is_sweep

    if is_sweep(args.run_dir):
        message = f"{args.run_dir} is a sweep: each folder in {args.run_dir / TRIALS} is a run"
        return print_error(message, 1, f"`rlc runs {args.run_dir}` lists them")
    plan = read_plan(args.run_dir)
    stages = {stage.name: stage for stage in plan.stages}
    if args.stage is not None and args.stage not in stages:
        return print_error(f"there is no stage `{args.stage}`", 1, f"known: {', '.join(stages)}")
    metrics = read_metrics(args.run_dir)
    trained = [r["stage"] for r in metrics if (s := stages.get(r["stage"])) is None or s.trains]
    latest = stages.get(args.stage or (trained[-1] if trained else ""))
    if latest is not None and is_training(latest) and latest.preference is not None:
        return show_comparisons(args, latest, metrics, _LIMIT)
    envs = list(dict.fromkeys(e.name for s in plan.stages for e in s.played))
    if args.env is not None and args.env not in envs:
        return print_error(f"there is no environment `{args.env}`", 1, f"known: {', '.join(envs)}")
    wanted = _filter(args, metrics)
    if wanted is None and latest is not None and latest.data:
        hint = (
            f"`rlc show {args.run_dir} --browse` and `rlc report {args.run_dir}` have its metrics"
        )
        return print_error(f"`{latest.name}` learns from examples: it has no episodes", 1, hint)
    if wanted is None:
        for line in causes(read_failures(args.run_dir)):
            Console(highlight=False).print(line, soft_wrap=True)
        where = f"of {args.stage} " if args.stage else ""
        return print_error(
            f"no step {where}with episodes is done yet", 1, "`rlc runs` says how far it is"
        )
    return _show(args, wanted, metrics, plan)


def _browse(args: argparse.Namespace) -> int:
    """Open the browser. Without a run it is what a person at a terminal wants; anything that reads
    the output has to name one."""
    names = ("stage", "step", "env", "task", "member", "row", "failed", "limit", "tokens", "json")
    given = [name for name in names if getattr(args, name) not in (None, False)]
    root = args.run_dir or Path("runs")
    if args.run_dir is None and not args.browse and (given or not _at_terminal()):
        return print_error("which run?", 2, "name its folder; `rlc runs` lists those in runs/")
    if given:
        hint = "look for them with / in the browser, or leave out --browse"
        return print_error(f"--{given[0]} does not go with --browse", 2, hint)
    if not _at_terminal():
        return print_error("--browse needs a terminal", 1, "without it, episodes are printed")
    try:
        import textual
    except ImportError:
        hint = "pip install 'rlc[browse]'; `rlc show RUN` prints episodes without it"
        return print_error("the browser needs the package textual", 1, hint)
    del textual
    from rlc.cli.browser.app import open_browser

    return open_browser(root)


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _filter(args: argparse.Namespace, metrics: Sequence[Record]) -> EpisodeFilter | None:
    """Return which episodes to show: by default those of the last step, or any that failed."""
    from rlc.report.episodes import EpisodeFilter, last_step

    found = last_step(metrics, args.stage)
    if found is None:
        return None
    if (args.failed or args.row) and args.step is None:
        found = EpisodeFilter(stage=args.stage)
    elif args.step is not None:
        found = evolve(found, step=args.step)
    return evolve(
        found, env=args.env, task=args.task, member=args.member, failed=args.failed, row=args.row
    )


def _show(
    args: argparse.Namespace,
    wanted: EpisodeFilter,
    metrics: Sequence[Record],
    plan: Plan,
) -> int:
    from itertools import islice

    from rich.console import Console

    from rlc.cli.tokens import TokenReader
    from rlc.report.episodes import ShownEpisode, read_episodes, representatives
    from rlc.runtime import read_failures

    systems, games = system_messages(plan), games_of(plan)
    records = read_episodes(args.run_dir, wanted)
    asked = (args.task, args.member, args.limit, args.row)
    if asked == (None,) * len(asked) and not args.failed:
        chosen = representatives(list(records))
    else:
        chosen = [ShownEpisode(record) for record in islice(records, args.limit or _LIMIT)]
    if not chosen:
        steps = [int(r["step"]) for r in metrics if r["stage"] == wanted.stage]
        hint = "`rlc runs` says how far the run is"
        if wanted.stage is not None and steps:
            hint = f"{wanted.stage} has done the steps {min(steps):,} to {max(steps):,}"
        return print_error("there are no such episodes", 1, hint)
    if args.json:
        for episode in chosen:
            print(json.dumps(episode.record, ensure_ascii=False))
        return 0
    console = Console(highlight=False)
    reader, by = TokenReader(args.run_dir, plan), args.tokens or ""
    if by and console.color_system is None:
        by = "table"
    failures = {failure.key: failure for failure in read_failures(args.run_dir)}
    shown = set[tuple[object, ...]]()
    for number, episode in enumerate(chosen):
        if is_match(episode.record):
            if (key := match_of(episode.record)) not in shown:
                if number:
                    console.print()
                shown.add(key)
                _show_match(
                    args.run_dir,
                    console,
                    key,
                    games[episode.record["stage"], episode.record["env"]],
                )
            continue
        if number:
            console.print()
        failure = failures.pop(str(episode.record.get("failure")), None)  # shown once
        replies = reader.replies(episode.record)
        for line in [
            *transcript(episode, systems.get(episode.record["env"]), replies, by),
            *causes([failure] if failure else []),
        ]:
            console.print(line, soft_wrap=True)
        if by and (said := reader.remark(episode.record, replies)):
            console.print(said, style="dim", markup=False, soft_wrap=True)
    return 0


def _show_match(
    path: Path, console: Console, key: tuple[object, ...], game: tuple[Sequence[str], str]
) -> None:
    from rich.text import Text

    from rlc.report.episodes import EpisodeFilter, read_episodes

    parts = [r for r in read_episodes(path, EpisodeFilter(*key)) if r["turns"]]  # type: ignore[arg-type]
    for style, line in match_lines(parts, *game):
        console.print(Text.assemble(*line, style=style), soft_wrap=True)
