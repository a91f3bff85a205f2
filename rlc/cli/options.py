"""What several commands have in common: the options that decide a plan, colour, errors."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, TextIO

from rlc.plan.records import SERVICES

if TYPE_CHECKING:
    from rlc.api import Recipe


def has_color(stream: TextIO) -> bool:
    """Whether a stream shows colour and its user wants it (https://no-color.org)."""
    dumb = os.environ.get("TERM") == "dumb"
    return stream.isatty() and not os.environ.get("NO_COLOR") and not dumb


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """``--set``, ``--seed`` and ``--rehearse``, which decide the plan beside the recipe."""
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="override a param (learning_rate=1e-4) or a field (main.steps=10)",
    )
    parser.add_argument("--seed", type=int, help="seed of every random choice (default 1)")
    parser.add_argument(
        "--service",
        choices=SERVICES,
        help="train on another service than the model's own: `tinker` with --base-url for a server "
        "of your own, `local` for the embedded engine",
    )
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="the same job on the embedded tiny model, small and short, without a key",
    )


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The recipe and the options that decide its plan."""
    from rlc.api import load

    return load(args.recipe, args.overrides, args.seed, args.rehearse, args.service)


def changes_plan(args: argparse.Namespace) -> bool:
    """Whether an option decides something beside the recipe."""
    return bool(args.overrides or args.rehearse or args.service or args.seed is not None)


def tell(message: str, status: int = 1, *hints: str) -> int:
    """Print an error with what to do about it, and return the exit status to end with."""
    for line in (f"error: {message}", *(f"  help: {hint}" for hint in hints)):
        print(line, file=sys.stderr)
    return status
