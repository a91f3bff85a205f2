"""``rlc init``: a small project that works as it is."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rlc.projects import TEMPLATES, make_project

VENDOR = Path("vendor")  # for an rlc that no index has
HELP = "write a small project to begin with"
DESCRIPTION = (
    "Write a small project: a recipe, its data and functions, tests, checks for pull requests and "
    "commits, and notes for coding agents. It runs as it is, on the included model."
)
EPILOG = "templates:\n" + "\n".join(f"  {name:<12}{what}" for name, what in TEMPLATES.items())
EPILOG += "\n\nexit status: 0 written, 1 there are such files already"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "where (default: here)"
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help=text)
    text = "what the project is about (default rl); see below"
    parser.add_argument("--template", choices=TEMPLATES, default="rl", help=text)


def run(args: argparse.Namespace) -> int:
    from rlc.emit import WHEEL, is_from_index, write_wheel

    folder = Path(args.folder)
    vendored = () if is_from_index() else (VENDOR / WHEEL,)
    named = [f"./{path}[{{}}]" for path in vendored]
    paths = make_project(folder, args.template, *named)
    for path in vendored:
        (folder / path).parent.mkdir(exist_ok=True)
        write_wheel((folder / path).parent)
    for path in (*paths, *vendored):
        print(f"  {folder / path}")
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    print(f"\nnext  {there}rlc check --import . && rlc run recipe.rl")
    print("      README.md says the rest")
    return 0
