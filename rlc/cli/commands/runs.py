"""``rlc runs``: what runs there are, and how each of them stands."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict

from rlc.cli.options import tell

if TYPE_CHECKING:
    from rich.table import Table

    from rlc.runtime.journal.runs import RunInfo, StageInfo

_EPILOG = """\
examples:
  rlc runs                               those in runs/
  rlc runs /data/experiments
  rlc runs --json | jq '.[] | select(.state == "failed") | .path'

states: running; finished; budget (ended at its budget); interrupted (by Ctrl-C, or its process is
gone); failed; damaged. `rlc run --resume RUN` goes on after a budget, an interrupt or a failure.

exit status: 0 listed, 1 there are no runs, 2 usage
"""
_STYLES = {
    "running": "cyan",
    "finished": "green",
    "budget": "yellow",
    "interrupted": "yellow",
    "failed": "red",
    "damaged": "red",
}
_PIPE_WIDTH = 240  # columns where nobody's terminal says how many there are


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "runs",
        help="list runs and their state",
        description="List the runs in a folder, the newest first: state, steps, last rewards, "
        "spend, and how long ago something last happened.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path("runs"), help="the folder (default runs)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rlc.runtime.journal.runs import is_run, list_runs, read_run

    found = [read_run(args.root)] if is_run(args.root) else list_runs(args.root)
    if args.json:
        print(json.dumps([_as_dict(info) for info in found], indent=2))
    elif found:
        _print(found)
    else:
        return tell(
            f"there are no runs in {args.root}",
            1,
            "`rlc run RECIPE` starts one; name their folder if they are elsewhere",
        )
    return 0


def _as_dict(info: RunInfo) -> dict[str, Any]:
    return asdict(info) | {"path": str(info.path), "resumable": info.resumable}


def _print(found: Sequence[RunInfo]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(table(found, time.time()))
    for info in found:
        for line in _remarks(info):
            console.print(line, soft_wrap=True, markup=False)


def table(found: Sequence[RunInfo], now: float) -> Table:
    """A row for each run; ``now`` in seconds since the epoch."""
    from rich.table import Table
    from rich.text import Text

    from rlc.plan.units import elapsed

    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("run", "state", "recipe", "steps", "last", "spent", "ago"):
        shown.add_column(title, overflow="fold", no_wrap=title in ("state", "spent", "ago"))
    for info in found:
        shown.add_row(
            Text(str(info.path)),
            Text(info.state, _STYLES[info.state]),
            Text(info.recipe),
            Text("\n".join(f"{s.name} {s.done:,}/{s.total:,}" for s in info.stages)),
            Text(last_results(info)),
            Text(f"${info.spent_usd:.2f}"),
            Text(elapsed(max(0, round(now - info.updated))) if info.updated else ""),
        )
    return shown


def last_results(info: RunInfo) -> str:
    """A line for each stage that has done something: rewards by environment, loss, or what the
    evaluation measured, each of the last step."""
    return "\n".join(", ".join(f"{name} {v:.3f}" for name, v in _results(s)) for s in info.stages)


def _results(stage: StageInfo) -> Iterator[tuple[str, float]]:
    prefix = {"train": "reward/", "sft": "loss/", "eval": f"eval/{stage.name}/"}[stage.kind]
    for key, value in stage.metrics.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or "/" in name:
            continue
        if stage.kind == "sft":
            yield "loss", value
        elif name not in ("mean", "failed", "cut_off"):
            yield name, value


def _remarks(info: RunInfo) -> Iterator[str]:
    """Why a run does not go on, and what to do."""
    if info.cause:
        yield f"{info.path}: {info.cause}"
    if info.resumable:
        yield f"  go on with: rlc run --resume {shlex.quote(str(info.path))}"
