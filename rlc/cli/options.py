"""The options that decide a plan, which several commands take."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rlc.plan.records import SERVICES

if TYPE_CHECKING:
    from rlc.api import Recipe


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide the plan beside the recipe."""
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


def recipe_of(args: argparse.Namespace, path: str | None = None) -> Recipe:
    """Load the recipe (the one at ``path``, if given) with the options that decide its plan."""
    from rlc.api import load

    return load(path or args.recipe, args.overrides, args.seed, args.rehearse, args.service)


def changes_plan(args: argparse.Namespace) -> bool:
    """Return whether any option decides something about the plan."""
    return bool(args.overrides or args.rehearse or args.service or args.seed is not None)
