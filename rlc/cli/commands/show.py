"""``rlc show``: the episodes of a run, to read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.cli.output import print_error

if TYPE_CHECKING:
    from rich.text import Text

    from rlc.report.episodes import Episode, EpisodeFilter
    from rlc.report.run_files import Record

HELP = "print episodes of a run"
DESCRIPTION = (
    "Print episodes of a run: what the environment said, what the model did, "
    "rewards and advantages. By default, of each environment the best, the median and the "
    "worst of the last step, and its failures."
)
EPILOG = """\
examples:
  rlc show runs/sudoku-20261121-093000                 best, median and worst of the last step
  rlc show runs/sudoku-20261121-093000 --step 40 --env sudoku
  rlc show runs/sudoku-20261121-093000 --step 40 --task 7      a whole group
  rlc show runs/sudoku-20261121-093000 --failed --limit 3      what went wrong
  rlc show runs/sudoku-20261121-093000 --json | jq .reward

exit status: 0 shown, 1 no such run or episode, 2 usage
"""
_LIMIT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="the folder of the run")
    parser.add_argument("--stage", help="a stage (default: the one that trained last)")
    parser.add_argument("--step", type=int, help="a step (default: the last)")
    parser.add_argument("--env", help="an environment (default: all)")
    parser.add_argument("--task", type=int, help="a task: its whole group")
    parser.add_argument("--member", type=int, help="a member of its group")
    parser.add_argument("--failed", action="store_true", help="only those that failed, of any step")
    parser.add_argument(
        "--limit", type=_positive, help=f"at most so many, in their order (default {_LIMIT})"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def run(args: argparse.Namespace) -> int:
    from rlc.report.run_files import read_lines, read_plan
    from rlc.runtime.journal.metrics import METRICS_FILE

    plan = read_plan(args.run_dir)
    stages = {stage.name: stage for stage in plan.stages}
    if args.stage is not None and args.stage not in stages:
        return print_error(f"there is no stage `{args.stage}`", 1, f"known: {', '.join(stages)}")
    envs = list(dict.fromkeys(e.name for s in plan.stages for e in getattr(s, "envs", ())))
    if args.env is not None and args.env not in envs:
        return print_error(f"there is no environment `{args.env}`", 1, f"known: {', '.join(envs)}")
    metrics = [r for r in read_lines(args.run_dir / METRICS_FILE) if "stage" in r and "step" in r]
    wanted = _filter(args, metrics)
    if wanted is None:
        where = f"of {args.stage} " if args.stage else ""
        return print_error(
            f"no step {where}with episodes is done yet", 1, "`rlc runs` says how far it is"
        )
    return _show(args, wanted, metrics)


def _filter(args: argparse.Namespace, metrics: Sequence[Record]) -> EpisodeFilter | None:
    """Return which episodes to show: by default those of the last step, or any that failed."""
    from rlc.report.episodes import EpisodeFilter, last_step

    found = last_step(metrics, args.stage)
    if found is None:
        return None
    if args.failed and args.step is None:
        found = EpisodeFilter(stage=args.stage)
    elif args.step is not None:
        found = evolve(found, step=args.step)
    return evolve(found, env=args.env, task=args.task, member=args.member, failed=args.failed)


def _show(args: argparse.Namespace, wanted: EpisodeFilter, metrics: Sequence[Record]) -> int:
    from itertools import islice

    from rich.console import Console

    from rlc.report.episodes import Episode, read_episodes, representatives

    records = read_episodes(args.run_dir, wanted)
    if args.task is None and args.member is None and not args.failed and args.limit is None:
        chosen = representatives(list(records))
    else:
        chosen = [Episode(record) for record in islice(records, args.limit or _LIMIT)]
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
    for number, episode in enumerate(chosen):
        if number:
            console.print()
        for line in transcript(episode):
            console.print(line, soft_wrap=True)
    return 0


def transcript(episode: Episode) -> list[Text]:
    """Return an episode line by line: a heading, then its turns."""
    from rich.text import Text

    record = episode.record
    lines = [_heading(episode)]
    if record["error"] is not None:
        lines.append(Text(f"✕ {record['error']}", "red"))
    advantages = record["advantages"]
    for number, turn in enumerate(record["turns"]):
        lines.append(Text(f"── turn {number + 1} of {len(record['turns'])}", "dim"))
        lines.append(_said("environment", turn["observation"], "cyan"))
        lines.append(_said("model", turn["action"], "bold"))
        lines.extend(
            _said(f"call of {name}", given, "") for _, name, given in turn.get("calls", ())
        )
        advantage = advantages[number] if number < len(advantages) else None
        lines.append(_outcome(turn, advantage))
    return lines


def _heading(episode: Episode) -> Text:
    from rich.text import Text

    from rlc.report.episodes import advantage

    record = episode.record
    line = Text(f"{record['env']}", "bold")
    line.append(f"  {episode.why}" if episode.why else "", "bold yellow")
    role = f", {record['role']}" if record["role"] else ""
    line.append(f"  {record['stage']} step {record['step']:,}, task {record['task']:,}, ", "dim")
    line.append(f"member {record['member']}{role}", "dim")
    line.append(f"  reward {record['reward']:.3f}")
    if record["advantages"]:
        line.append("  advantage ")
        line.append(_signed(advantage(record)))
    stale = f", {record['staleness']} steps stale" if record["staleness"] else ""
    replaced = ", replaced by another group" if record.get("replaced") else ""
    line.append(f"  {record['ended']}{stale}{replaced}", "dim")
    return line


def _said(who: str, text: str, style: str) -> Text:
    from rich.text import Text

    line = Text(f"{who}:\n", "dim")
    line.append("\n".join(f"  {part}" for part in text.splitlines()) or "  (nothing)", style)
    return line


def _outcome(turn: Record, advantage: float | None) -> Text:
    from rich.text import Text

    reward = turn["reward"]
    line = Text("no reward" if reward is None else f"reward {reward:.3f}")
    if advantage is not None:
        line.append("  advantage ", "default")
        line.append(_signed(advantage))
    measured = "".join(f"  {name} {value:g}" for name, value in turn["metrics"].items())
    tokens = f"  {turn['prompt_tokens']:,} + {turn['tokens']:,} tokens, {turn['stop_reason']}"
    line.append(measured + tokens, "dim")
    return line


def _signed(value: float) -> Text:
    """Green above zero, red below; a mark says the same without colour."""
    from rich.text import Text

    from rlc.report.formatting import signed

    return Text(signed(value), "green" if value > 0 else "red" if value < 0 else "dim")
