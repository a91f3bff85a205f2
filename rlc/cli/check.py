"""``rlc check``: every mistake in some recipes, in one run."""

from __future__ import annotations

import argparse
import gc
import os
import sys

from rlc.cli.options import has_color
from rlc.lang.diagnostics import Diagnostics

_EPILOG = """\
examples:
  rlc check recipes/quickstart.rl
  rlc check recipes                    every recipe in the folder
  rlc check --format json recipes

exit status: 0 clean (warnings allowed), 1 errors found, 2 usage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "check",
        help="find every mistake in a recipe",
        description="Find every mistake in some recipes. Nothing is run, fetched or paid for.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a recipe, a folder, or -")
    parser.add_argument(
        "--format", choices=("human", "json"), default="human", help="how findings are printed"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rlc.plan.compile import check

    gc.disable()  # a check is over before a collection would pay; large ones take a third less
    found, checked = Diagnostics(), 0
    for path in args.paths:
        files = _recipes(path)
        if not files:
            print(f"rlc check: no recipe (*.rl) in {path}", file=sys.stderr)
            return 2
        for file in files:
            found += check(file)
            checked += 1
    _print(found, checked, args.format)
    return 1 if found.has_errors else 0


def _recipes(path: str) -> list[str]:
    """The file itself, or every recipe in a folder and its subfolders, in order."""
    if not os.path.isdir(path):
        return [path]
    files = []
    for folder, subfolders, names in os.walk(path):
        subfolders.sort()
        files += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".rl")]
    return files


def _print(found: Diagnostics, checked: int, format: str) -> None:
    from rlc.lang.render import render_human, render_json

    if format == "json":
        print(render_json(found))
        return
    sys.stdout.write(render_human(found, color=has_color(sys.stdout)))
    if not found:
        print(f"{checked} recipe{'s' * (checked != 1)} checked, no findings")
