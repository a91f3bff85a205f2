"""``rlc runs``: what runs there are, and how each of them stands."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlc.cli.summary import last_results
from rlc.errors import Error
from rlc.plan import RUNS_FOLDER
from rlc.records import asdict

if TYPE_CHECKING:
    from rich.table import Table

    from rlc.runtime import RunInfo

HELP = "list runs and their state"
DESCRIPTION = (
    "List the runs in a folder, or the trials of a sweep, the newest first: what differs between "
    "those of one recipe and what was set on the command line, state, steps, last results, spend, "
    "and how long ago something last happened."
)
EPILOG = """\
examples:
  rlc runs                               those in runs/
  rlc runs /data/experiments
  rlc runs runs/rates-20261121-093000    the trials of a sweep
  rlc runs --tag short                   those that `rlc run --tag short` began
  rlc runs --json | jq '.[] | select(.state == "failed") | .path'

states: running; finished; budget (ended at its budget); interrupted (by Ctrl-C, or its process is
gone); failed; damaged. `rlc run --resume RUN` goes on after an interrupt or a failure; after a
budget, `rlc run RECIPE --weights RUN` begins another run from what was learnt.

`expected` says how many of the recipe's expectations passed. `model` is what follows the run in the
name of the model that it has left: `rlc chat RUN@main:20`.

exit status: 0 listed, 1 there are no runs, 2 usage
"""
_STYLES = {"running": "cyan", "finished": "green", "budget": "yellow", "interrupted": "yellow"}
_STYLES |= {"failed": "red", "nothing learnt": "red", "damaged": "red"}
_MOST_DIFFERENCES = 4  # of a run
_PIPE_WIDTH = 240  # columns if there is no terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    root, text = Path(RUNS_FOLDER), "the folder (default runs)"
    parser.add_argument("root", nargs="?", type=Path, default=root, help=text)
    text = "only the runs of this name (`rlc run --tag`)"
    parser.add_argument("--tag", metavar="NAME", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps(run_rows(args.root, args.tag), indent=2))
        return 0
    found, sweeps = _found(args.root, args.tag)
    if found or sweeps:
        _print(found, _differing(args.root, found), sweeps)
    else:
        tagged = f"with the tag {args.tag} " if args.tag else ""
        advice = "`rlc run RECIPE` starts one; name their folder if they are elsewhere"
        raise Error(f"there are no runs {tagged}in {args.root}", advice)
    return 0


def run_rows(root: Path, tag: str | None = None) -> list[dict[str, Any]]:
    """Return the data of `rlc runs --json`; with a ``tag`` only the runs that have it."""
    from rlc.catalog import model_of

    found, sweeps = _found(root, tag)
    differing = _differing(root, found)
    rows: list[dict[str, Any]] = [
        {"kind": "run"}
        | asdict(info)
        | {
            "path": str(info.path),
            "resumable": info.resumable,
            "differs": differing[info.path],
            "model": model_of(str(info.path)),
            "stages": [
                {name: value for name, value in asdict(stage).items() if name != "watched"}
                for stage in info.stages
            ],
        }
        for info in found
    ]
    return rows + [{"kind": "sweep", "path": str(path), **_sweep_dict(path)} for path in sweeps]


def _found(root: Path, tag: str | None) -> tuple[list[RunInfo], list[Path]]:
    """Return the runs in a folder, or the trials of a sweep, and the sweeps."""
    from rlc.sweeps import is_sweep, runs_in

    if tag is not None:
        return [info for info in runs_in(root) if tag in info.tags], []
    if is_sweep(root):
        return runs_in(root), [root]
    inside = sorted(root.iterdir()) if root.is_dir() else ()
    return runs_in(root), [path for path in inside if is_sweep(path)]


def _differing(root: Path, found: Sequence[RunInfo]) -> dict[Path, dict[str, str]]:
    """Return what differs between runs by their folders: of the trials of a sweep what it varies,
    as a value of it may be seen in other places of a plan."""
    from rlc.runtime import RunError, what_differs
    from rlc.sweeps import is_sweep, read_sweep

    differing = what_differs(found)
    if is_sweep(root):
        with suppress(RunError):  # of a damaged sweep the plans are known
            sweep = read_sweep(root)
            for trial in (record.trial for record in sweep.trials):
                seed = {"seed": str(trial.seed)} if sweep.plan.seeds > 1 else {}
                differing[sweep.folder_of(trial)] = {**trial.configuration, **seed}
    return differing


def _print(
    found: Sequence[RunInfo], differing: Mapping[Path, Mapping[str, str]], sweeps: Sequence[Path]
) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    if found:
        console.print(table(found, time.time(), differing))
    lines = list[str]()
    for info in found:
        lines += [f"{info.path}: {info.cause}"] if info.cause else []
        unmet = [one for one in info.expectations if one.holds is False]
        lines += [f"{info.path}: expected {one.text}: {one.said}" for one in unmet]
        if info.resumable:
            lines.append(f"  go on with: rlc run --resume {shlex.quote(str(info.path))}")
    for line in (*lines, *map(_sweep_line, sweeps)):
        console.print(line, soft_wrap=True, markup=False)


def _sweep_dict(path: Path) -> dict[str, Any]:
    """Return the state of a sweep, its trials by state, and its best configuration."""
    from rlc.runtime import RunError
    from rlc.sweeps import read_sweep

    try:
        sweep = read_sweep(path)
    except RunError as error:
        return {"state": "damaged", "cause": error.message}
    best = sweep.best
    return {
        "name": sweep.plan.name,
        "recipe": sweep.recipe,
        "state": sweep.state,
        "trials": dict(Counter(record.state for record in sweep.trials)),
        "metric": sweep.plan.metric.name,
        "best": None if best is None else {"value": best.mean, "values": best.configuration},
    }


def _sweep_line(path: Path) -> str:
    sweep = _sweep_dict(path)
    if "cause" in sweep:
        return f"{path}: a sweep that cannot be read: {sweep['cause']}"
    trials = ", ".join(f"{number} {state}" for state, number in sweep["trials"].items())
    best = sweep["best"]
    value = "" if best is None else f"; best {sweep['metric']} {best['value']:.4f}"
    return f"{path}: sweep {sweep['name']} {sweep['state']}: {trials or 'no trials'}{value}"


def table(
    found: Sequence[RunInfo], now: float, differing: Mapping[Path, Mapping[str, str]]
) -> Table:
    """Return a row for each run. ``now``: seconds since the epoch."""
    from rich.table import Table
    from rich.text import Text

    from rlc.catalog import model_of
    from rlc.plan import elapsed, in_dollars

    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    expected = any(info.expectations for info in found)
    tagged = any(info.tags for info in found)
    left_out = {name for name, has in (("tags", tagged), ("expected", expected)) if not has}
    titles = "run", "tags", "state", "recipe", "differs", "steps", "model", "last", "expected"
    for title in (*titles, "spent", "ago"):
        if title not in left_out:
            shown.add_column(title, overflow="fold", no_wrap=title in ("state", "spent", "ago"))
    for info in found:
        shown.add_row(
            Text(str(info.path)),
            *([Text("\n".join(info.tags))] if tagged else []),
            Text(info.state, _STYLES[info.state]),
            Text(info.recipe),
            Text(_differences(differing.get(info.path, {}))),
            Text("\n".join(f"{s.name} {s.done:,}/{s.total:,}" for s in info.stages)),
            Text((model_of(str(info.path)) or "").removeprefix(str(info.path))),
            Text(last_results(info)),
            *([Text(_expectations(info))] if expected else []),
            Text(in_dollars(info.spent_usd)),
            Text(elapsed(max(0, round(now - info.updated))) if info.updated else ""),
        )
    return shown


def _differences(values: Mapping[str, str]) -> str:
    lines = [f"{name} {value}" for name, value in values.items()]
    more = [f"and {len(lines) - _MOST_DIFFERENCES} more"] if len(lines) > _MOST_DIFFERENCES else []
    return "\n".join([*lines[:_MOST_DIFFERENCES], *more])


def _expectations(info: RunInfo) -> str:
    """Return how many of the expectations passed: ``2 of 3 passed``, ``3 open``."""
    known = [one.holds for one in info.expectations]
    if not any(holds is not None for holds in known):
        return f"{len(known)} open" if known else ""
    return f"{known.count(True)} of {len(known)} passed"
