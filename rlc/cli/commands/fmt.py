"""``rlc fmt``: lay recipes out the canonical way."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rlc.cli.options import has_color
from rlc.cli.paths import recipe_files

if TYPE_CHECKING:
    from rlc.lang.diagnostics import Diagnostics


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``fmt`` to the command line."""
    parser = subparsers.add_parser(
        "fmt",
        help="lay recipes out the canonical way",
        description="Rewrite recipes in the canonical layout. Comments stay where they are; "
        "a recipe with syntax errors is left alone.",
        epilog="exit status: 0 done or nothing to do; 1 syntax errors, or with --check or --diff "
        "a recipe would change; 2 wrong usage",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a recipe, a folder of them, or - to format standard input and print it",
    )
    parser.add_argument("--check", action="store_true", help="only name recipes that would change")
    parser.add_argument("--diff", action="store_true", help="only show what would change")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Format each path; the exit status."""
    from rlc.lang.diagnostics import Diagnostics
    from rlc.lang.render import render_human

    files = recipe_files(args.paths)
    found = Diagnostics()
    changes = 0
    for file in files:
        changes += _format(file, args, found)
    if found:
        sys.stderr.write(render_human(found, has_color(sys.stderr)))
    only_shown = args.check or args.diff
    return 1 if found or (changes and only_shown) else 0


def _format(path: str, args: argparse.Namespace, found: Diagnostics) -> bool:
    """Handle one recipe, adding what is wrong with it to ``found``; whether it changes."""
    from rlc.cli.diffs import text_diff
    from rlc.lang.formatter import format_text
    from rlc.lang.read import STDIN, read_source, write_text
    from rlc.lang.syntax import parse

    source, problems = read_source(path)
    if source is not None:
        recipe, syntax = parse(source)
        problems += syntax
    if source is None or problems.has_errors:
        found += problems
        return False
    text = format_text(source, recipe)
    changed = text != source.text
    if args.diff and changed:
        sys.stdout.write(text_diff(source.name, source.text, text, "formatted"))
    if args.check and changed:
        print(f"would change {source.name}")
    if args.check or args.diff:
        return changed
    if path == STDIN:
        sys.stdout.write(text)
    elif changed:
        problems += write_text(path, text)
        found += problems
        if not problems:
            print(f"formatted {source.name}")
    return changed
