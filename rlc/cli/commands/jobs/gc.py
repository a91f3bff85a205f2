"""``rlc gc``: what is stored and needed by nothing, and its deletion."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlc.cli.options import add_base_url
from rlc.cli.output import UsageError
from rlc.plan import RUNS_FOLDER
from rlc.records import asdict

if TYPE_CHECKING:
    from rlc.runtime import Storage, StoredItem

HELP = "list, and delete, what is stored and needed by nothing"
DESCRIPTION = (
    "List what is stored of the runs in a folder and needed by nothing: states of the embedded "
    "engine that no journal names, folders that were left behind, checkpoints on the services that "
    "the runs have trained on, with sizes and the price of a month. Nothing is deleted without "
    "--yes, and never what a run, a recipe or a plan names."
)
EPILOG = """\
examples:
  rlc gc                               look: delete nothing
  rlc gc --yes                         delete what is listed
  rlc gc --yes --lose-reuse            also what only a longer run could take
  rlc gc --yes --of main-20261121-093000    checkpoints of a run that is not here
  rlc gc /data/runs --json

A checkpoint of a run that is not here (it was deleted, or is on another machine) is listed, and
deleted only if --of names its run.

exit status: 0 listed or deleted, 1 something could not be deleted, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    root, text = Path(RUNS_FOLDER), "the folder of runs (default runs)"
    parser.add_argument("root", nargs="?", type=Path, default=root, help=text)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="delete nothing, which is the default")
    how.add_argument("--yes", action="store_true", help="delete what is listed")
    text = "also what only a longer run could take from those that are over"
    parser.add_argument("--lose-reuse", action="store_true", help=text)
    text = "also the checkpoints of a run that is not here, or not over; may be repeated"
    parser.add_argument("--of", metavar="RUN", action="append", default=[], help=text)
    text = "look at the checkpoints on this service (default those that the runs have trained on); "
    text += "may be repeated"
    parser.add_argument("--service", metavar="NAME", action="append", default=[], help=text)
    text = "look at this machine only"
    parser.add_argument("--local", action="store_true", help=text)
    add_base_url(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from rlc.runtime import stored

    if args.local and (args.service or args.base_url):
        raise UsageError("--local looks at this machine only, and takes no service")
    services = [] if args.local else args.service or None
    found = stored(args.root, services, args.base_url)
    chosen = found.chosen(args.lose_reuse, args.of)
    kept = found.delete(chosen) if args.yes else []
    if args.json:
        data = stored_data(found, chosen)
        print(json.dumps(data | {"deleted": args.yes, "not_deleted": kept}, indent=2))
        return int(bool(kept))
    for note in found.notes:
        print(f"note: {note}")
    for one in chosen:
        print(_line(one))
    done = "deleted" if args.yes else "could be deleted"
    print(f"{len(chosen) - len(kept):,} {done}, {_total(chosen)}")
    if others := [one for one in found.items if one not in chosen]:
        print(f"{len(others):,} kept, {_total(others)}:")
        _print_kept(others)
    for text in kept:
        print(f"note: {text}")
    if chosen and not args.yes:
        print("`rlc gc --yes` deletes what is listed")
    return int(bool(kept))


def stored_data(found: Storage, chosen: Iterable[StoredItem] | None = None) -> dict[str, Any]:
    """Return the data of `rlc gc --json`; ``chosen`` is what would be deleted."""
    paths = {one.path for one in (found.chosen() if chosen is None else chosen)}
    items = [{**asdict(one), "chosen": one.path in paths} for one in found.items]
    return {"items": items, "notes": list(found.notes)}


def _print_kept(others: list[StoredItem]) -> None:
    """Print what is not deleted without being asked for, by the option that asks for it."""
    reuse = [one for one in others if one.loses_reuse]
    if reuse:
        print(f"  {len(reuse):,} that a longer run could take ({_total(reuse)}): --lose-reuse")
    for name in sorted({one.run for one in others if one.elsewhere}):
        mine = [one for one in others if one.elsewhere and one.run == name]
        where = "not here" if "not here" in mine[0].why else "not over"
        print(f"  {len(mine):,} of the run {name}, which is {where} ({_total(mine)}): --of {name}")


def _line(one: StoredItem) -> str:
    price = "" if one.usd == 0 else f", {_price(one.usd)} a month"
    until = ""
    if one.expires is not None:
        until = f", until {time.strftime('%Y-%m-%d', time.localtime(one.expires))}"
    return f"{one.kind}  {one.path}  {_bytes(one.size)}{price}{until}: {one.why}"


def _total(items: list[StoredItem]) -> str:
    known = [one.size for one in items if one.size is not None]
    size = _bytes(sum(known)) + ("" if len(known) == len(items) else " and more")
    prices = [one.usd for one in items if one.kind == "checkpoint"]
    if not prices:
        return size
    more = " and more" if None in prices else ""
    return f"{size}, {_price(sum(one or 0.0 for one in prices))}{more} a month"


def _price(usd: float | None) -> str:
    from rlc.plan import in_dollars

    return in_dollars(usd)


def _bytes(size: int | None) -> str:
    if size is None:
        return "of unknown size"
    number, units = float(size), ["bytes", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.3g} {units[0]}"
