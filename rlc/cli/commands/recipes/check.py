"""``rlc check``: every mistake in some recipes, in one run, and ``--fix`` for the clear ones."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, TextIO

from rlc.cli.options import add_set
from rlc.cli.output import UsageError, has_color, print_diff
from rlc.lang import Diagnostics, recipe_files

if TYPE_CHECKING:
    from rlc.data import Reader

HELP = "find every mistake in a recipe"
DESCRIPTION = (
    "Find every mistake in some recipes. Nothing is fetched or paid for, and without --import no "
    "code of your own is run."
)
EPILOG = """\
examples:
  rlc check recipes/quickstart.rl
  rlc check recipes                    every recipe in the folder
  rlc check --diff recipes             what --fix would change
  rlc check --set main.steps=10 a.rl   as `rlc run --set` would have it
  rlc check --import recipes           import their Python code too, and try rewards
  rlc check --fix recipes              correct what is clear, report the rest
  rlc check --format github recipes    annotations in a pull request

exit status: 0 clean (warnings allowed), 1 errors found, or with --diff something to fix, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a recipe, a folder, or -")
    add_set(parser)
    formats, text = ("human", "json", "sarif", "github"), "how findings are printed"
    parser.add_argument("--format", choices=formats, default="human", help=text)
    text = "correct what has one sensible reading, in the file; with - print the result"
    parser.add_argument("--fix", action="store_true", help=text)
    group = parser.add_mutually_exclusive_group()
    text = "do not read the data that the recipes name"
    group.add_argument("--no-data", action="store_true", help=text)
    text = "also import the Python code that the recipes name, and try rewards on the first rows"
    group.add_argument("--import", dest="imports", action="store_true", help=text)
    parser.add_argument("--diff", action="store_true", help="only show what --fix would change")


def run(args: argparse.Namespace) -> int:
    files = recipe_files(args.paths)
    if args.overrides and (args.fix or args.diff):
        raise UsageError("what --set puts in is not in the file: it cannot be corrected there")
    if args.fix or args.diff:
        return _fix(files, args)
    from rlc.compile import check

    found = Diagnostics()
    reader = _reader(args)
    for file in files:
        found += check(file, reader, args.overrides)
    _print(found, len(files), args.format, sys.stdout)
    for path, rows in reader.unfinished() if reader else ():
        rest = "to be quick; `rlc run` reads the rest before it trains"
        print(f"note: {path} was not read beyond row {rows:,}, {rest}", file=sys.stderr)
    fixable = sum(item.fix is not None and item.fix.safe for item in found)
    if fixable and args.format == "human":
        print(f"{fixable} with a clear correction: `rlc check --fix`, or `--diff` to see it first")
    return 1 if found.has_errors else 0


def _reader(args: argparse.Namespace) -> Reader | None:
    if args.no_data:
        return None
    from rlc.data import Reader

    return Reader(imports=args.imports)


def _fix(files: list[str], args: argparse.Namespace) -> int:
    """Correct each file or show how, then print what remains."""
    from rlc.compile import compile_source
    from rlc.lang import STDIN, fix_all, printable, read_source, write_text

    reader = _reader(args)
    remaining, changes = Diagnostics(), 0
    # The text of standard input, or the diff, has standard output for itself.
    text_apart = args.diff or STDIN in files
    report = sys.stderr if text_apart or args.format != "human" else sys.stdout
    for file in files:
        source, problems = read_source(file)
        remaining += problems
        if source is None:
            continue
        fixed = fix_all(source, lambda source: compile_source(source, reader=reader).diagnostics)
        changes += len(fixed.applied)
        remaining += fixed.remaining
        if args.diff:
            print_diff(source.name, source.text, fixed.source.text, "fixed")
            continue
        if file == STDIN:
            sys.stdout.write(fixed.source.text)
        elif fixed.source.text != source.text:
            remaining += write_text(file, fixed.source.text)
        for item in fixed.applied:  # a.rl:3:7: RL0010 expected `=`, found `:` (write `=`)
            assert item.span is not None
            assert item.fix is not None
            place = f"{item.file_name}:{item.span.line}:{item.span.column}"
            message = f"{item.code} {printable(item.message)}"
            print(f"fixed {place}: {message} ({item.fix.title})", file=report)
    _print(remaining, len(files), args.format, sys.stderr if text_apart else sys.stdout)
    return 1 if remaining.has_errors or (args.diff and changes) else 0


def _print(found: Diagnostics, checked: int, format: str, stream: TextIO) -> None:
    """Print the findings; a file that several recipes import is reported once."""
    unique = {}
    for item in found:
        place = (item.span.start, item.span.end) if item.span else None
        unique[item.file_name, item.code, item.message, place] = item
    found = Diagnostics(unique.values())
    if format == "human" and not found:
        print(f"{checked} recipe{'s' * (checked != 1)} checked, no findings", file=stream)
        return
    if format == "human":
        from rlc.lang.render import render_human

        stream.write(render_human(found, color=has_color(stream)))
        return
    from rlc.lang import render_github, render_json, render_sarif
    from rlc.version import __version__

    if format == "github":
        stream.write(render_github(found))
    else:
        text = render_json(found) if format == "json" else render_sarif(found, __version__)
        print(text, file=stream)
