"""``rlc fmt``: lay recipes out the canonical way."""

from __future__ import annotations

import argparse
import sys

from rlc.cli.output import print_diff, print_findings
from rlc.lang import Diagnostics, recipe_files

HELP = "lay recipes out the canonical way"
DESCRIPTION = (
    "Rewrite recipes in the canonical layout. Comments stay where they are; "
    "a recipe with syntax errors is left alone."
)
EPILOG = (
    "exit status: 0 done or nothing to do; 1 syntax errors, or with --check or --diff "
    "a recipe would change; 2 wrong usage"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a recipe, a folder of them, or - to format standard input and print it"
    parser.add_argument("paths", nargs="+", metavar="PATH", help=text)
    parser.add_argument("--check", action="store_true", help="only name recipes that would change")
    parser.add_argument("--diff", action="store_true", help="only show what would change")


def run(args: argparse.Namespace) -> int:
    found = Diagnostics()
    changes = sum([_format(file, args, found) for file in recipe_files(args.paths)])
    print_findings(found)
    return 1 if found or (changes and (args.check or args.diff)) else 0


def _format(path: str, args: argparse.Namespace, found: Diagnostics) -> bool:
    """Format one recipe, add what is wrong with it to ``found``, and return whether it changes."""
    from rlc.lang import STDIN, format_text, read_source, write_text
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
        print_diff(source.name, source.text, text, "formatted")
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
