"""``rlc show``: the episodes of a run, or the preferences it compared, to read."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.cli.output import UsageError
from rlc.cli.transcripts import (
    TokenReader,
    causes,
    games_of,
    indented,
    is_match,
    match_lines,
    match_of,
    system_messages,
    transcript,
)
from rlc.errors import Error
from rlc.plan import RUNS_FOLDER

if TYPE_CHECKING:
    from rlc.plan import Plan, Training
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
    text = "the folder of the run; with --browse also a folder of runs (default runs)"
    parser.add_argument("run_dir", metavar="RUN", nargs="?", type=Path, help=text)
    text = "walk through it, also while the run goes on"
    parser.add_argument("--browse", action="store_true", help=text)
    parser.add_argument("--stage", help="a stage (default: the one that trained last)")
    parser.add_argument("--step", type=int, help="a step (default: the last)")
    parser.add_argument("--env", help="an environment (default: all)")
    parser.add_argument("--task", type=int, help="a task: its whole group")
    parser.add_argument("--member", type=int, help="a member of its group")
    parser.add_argument("--row", metavar="ID", help="the row of data with that id, or place")
    parser.add_argument("--failed", action="store_true", help="only those that failed, of any step")
    text = f"at most so many, in their order (default {_LIMIT})"
    parser.add_argument("--limit", type=_positive, help=text)
    text = "colour the tokens that were trained on by that; listed where there is no colour"
    parser.add_argument("--tokens", choices=("advantage", "ratio"), help=text)
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

    from rlc.plan import is_training
    from rlc.report import read_plan
    from rlc.report.episodes import EpisodeFilter, last_step
    from rlc.runtime import read_failures, read_metrics
    from rlc.sweeps import TRIALS, is_sweep

    if is_sweep(args.run_dir):
        message = f"{args.run_dir} is a sweep: each folder in {args.run_dir / TRIALS} is a run"
        raise Error(message, f"`rlc runs {args.run_dir}` lists them")
    plan = read_plan(args.run_dir)
    stages = {stage.name: stage for stage in plan.stages}
    if args.stage is not None and args.stage not in stages:
        raise Error(f"there is no stage `{args.stage}`", f"known: {', '.join(stages)}")
    metrics = read_metrics(args.run_dir)
    trained = [r["stage"] for r in metrics if (s := stages.get(r["stage"])) is None or s.trains]
    latest = stages.get(args.stage or (trained[-1] if trained else ""))
    if latest is not None and is_training(latest) and latest.preference is not None:
        return _show_comparisons(args, latest, metrics)
    envs = list(dict.fromkeys(e.name for s in plan.stages for e in s.played))
    if args.env is not None and args.env not in envs:
        raise Error(f"there is no environment `{args.env}`", f"known: {', '.join(envs)}")
    wanted = last_step(metrics, args.stage)
    if wanted is None and latest is not None and latest.data:
        folder = args.run_dir
        hint = f"`rlc show {folder} --browse` and `rlc report {folder}` have its metrics"
        raise Error(f"`{latest.name}` learns from examples: it has no episodes", hint)
    if wanted is None:
        for line in causes(read_failures(args.run_dir)):
            Console(highlight=False).print(line, soft_wrap=True)
        where = f"of {args.stage} " if args.stage else ""
        raise Error(f"no step {where}with episodes is done yet", "`rlc runs` says how far it is")
    if (args.failed or args.row) and args.step is None:
        wanted = EpisodeFilter(stage=args.stage)
    elif args.step is not None:
        wanted = evolve(wanted, step=args.step)
    names = ("env", "task", "member", "failed", "row")
    wanted = evolve(wanted, **{name: getattr(args, name) for name in names})
    return _show(args, wanted, metrics, plan)


def _browse(args: argparse.Namespace) -> int:
    """Open the browser: the default at a terminal. Without one, a run has to be named."""
    names = ("stage", "step", "env", "task", "member", "row", "failed", "limit", "tokens", "json")
    given = [name for name in names if getattr(args, name) not in (None, False)]
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if args.run_dir is None and not args.browse and (given or not at_terminal):
        raise UsageError("which run?", "name its folder; `rlc runs` lists those in runs/")
    if given:
        hint = "look for them with / in the browser, or leave out --browse"
        raise UsageError(f"--{given[0]} does not go with --browse", hint)
    if not at_terminal:
        raise Error("--browse needs a terminal", "without it, episodes are printed")
    if find_spec("textual") is None:
        hint = "pip install 'rlc[browse]'; `rlc show RUN` prints episodes without it"
        raise Error("the browser needs the package textual", hint)
    from rlc.cli.browser.app import open_browser

    return open_browser(args.run_dir or Path(RUNS_FOLDER))


def _show(
    args: argparse.Namespace, wanted: EpisodeFilter, metrics: Sequence[Record], plan: Plan
) -> int:
    """Print episodes: the most representative of a step, or those that are asked for."""
    from itertools import islice

    from rich.console import Console
    from rich.text import Text

    from rlc.report.episodes import EpisodeFilter, ShownEpisode, read_episodes, representatives
    from rlc.runtime import read_failures

    systems, games = system_messages(plan), games_of(plan)
    records = read_episodes(args.run_dir, wanted)
    if {args.task, args.member, args.limit, args.row} == {None} and not args.failed:
        chosen = representatives(list(records))
    else:
        chosen = [ShownEpisode(record) for record in islice(records, args.limit or _LIMIT)]
    if not chosen:
        steps = [int(r["step"]) for r in metrics if r["stage"] == wanted.stage]
        hint = "`rlc runs` says how far the run is"
        if wanted.stage is not None and steps:
            hint = f"{wanted.stage} has done the steps {min(steps):,} to {max(steps):,}"
        raise Error("there are no such episodes", hint)
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
        record = episode.record
        match = match_of(record) if is_match(record) else None  # shown once, with all its seats
        if match in shown:
            continue
        if number:
            console.print()
        if match is not None:
            shown.add(match)
            seats = read_episodes(args.run_dir, EpisodeFilter(*match))
            parts = [part for part in seats if part["turns"]]
            for style, line in match_lines(parts, *games[record["stage"], record["env"]]):
                console.print(Text.assemble(*line, style=style), soft_wrap=True)
            continue
        failure = failures.pop(str(record.get("failure")), None)  # shown once
        replies = reader.replies(record)
        lines = transcript(episode, systems.get(record["env"]), replies, by)
        for text in (*lines, *causes([failure] if failure else [])):
            console.print(text, soft_wrap=True)
        if by and (remark := reader.remark(record, replies)):
            console.print(remark, style="dim", markup=False, soft_wrap=True)
    return 0


def _show_comparisons(args: argparse.Namespace, plan: Training, metrics: Sequence[Record]) -> int:
    """Print preferences of a step: by default the widest, median and worst margin of the last."""
    from rich.console import Console

    from rlc.report import signed
    from rlc.report.episodes import comparisons, last_compared, typical

    odd = [n for n in ("env", "task", "member", "failed", "tokens") if getattr(args, n)]
    odd += [n for n in ("task", "member") if getattr(args, n) == 0]
    if odd:
        message = f"--{odd[0]} does not go with `{plan.name}`: it learns from preferences"
        hint = "it compares replies in its data: --step, --row and --limit choose among them"
        raise UsageError(message, hint)
    last = last_compared(metrics, plan.name)
    if last is None:
        raise Error(f"no step of {plan.name} is done yet", "`rlc runs` says how far it is")
    found = comparisons(args.run_dir, plan, last if args.step is None else args.step)
    if args.row is not None:
        found = [one for one in found if args.row in (str(one.number), one.place)]
    if not found:
        hint = f"{plan.name} has done the steps 1 to {last:,}"
        raise Error("there are no such preferences", hint)
    listed = args.limit is not None or args.row is not None
    chosen = found[: args.limit or _LIMIT] if listed else typical(found)
    console = Console(highlight=False)
    for number, one in enumerate(chosen):
        if args.json:
            print(json.dumps(one.written(), ensure_ascii=False))
            continue
        if number:
            console.print()
        why, margin = f"{one.why}  " if one.why else "", signed(one.margin)
        heading = f"{why}{one.stage} step {one.step:,}, {one.place}  margin {margin}"
        lines = [(heading, "bold"), ("prompt:", "dim"), (indented(one.prompt), "cyan")]
        for reply in one.replies:
            lines.append((f"{reply.side}, reward {signed(reply.reward)}:", "dim"))
            lines.append((indented(reply.text), "bold"))
        for text, style in lines:
            console.print(text, style=style, markup=False, soft_wrap=True)
    return 0
