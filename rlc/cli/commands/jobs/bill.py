"""``rlc bill``: what runs were expected to cost, what they metered, and what was billed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlc.cli.options import add_base_url, add_runs

HELP = "what runs were expected to cost, have metered, and what is billed"
DESCRIPTION = (
    "Set side by side what a run was expected to cost, what it has metered and what its service "
    "has billed, by stage and kind of token, and say what was sampled for nothing. Tinker says "
    "what it has billed to keys with a role in billing, some hours later; others do not say it."
)
EPILOG = """\
examples:
  rlc bill runs/sudoku-20261121-093000
  rlc bill runs/sudoku-*
  rlc bill runs/sudoku-1 --offline               what was predicted and metered alone
  rlc bill runs/sudoku-1 --usage usage.json      from an answer that somebody else has saved:
                                                 tinker --format json billing usage START END
  rlc bill runs/sudoku-1 --json | jq '.[0].reconciles'

exit status: 0 printed; 1 metered and billed differ by more than 1%, or no such run; 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    how = parser.add_mutually_exclusive_group()
    text = "a file with an answer of Tinker's API about usage, instead of asking for it"
    how.add_argument("--usage", type=Path, metavar="FILE", help=text)
    how.add_argument("--offline", action="store_true", help="ask no service what it has billed")
    add_base_url(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import rlc
    from rlc.report import bill_lines

    found = rlc.bill(*args.runs, base_url=args.base_url, usage=args.usage, ask=not args.offline)
    if args.json:
        print(json.dumps([one.to_dict() for one in found], indent=2))
    else:
        print("\n\n".join("\n".join(bill_lines(one)) for one in found))
    return int(any(one.reconciles is False for one in found))
