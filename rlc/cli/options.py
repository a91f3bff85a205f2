"""What several commands take: options that decide a plan, and paths of recipes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlc.errors import Error
from rlc.plan import SERVICES

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
    parser.add_argument(
        "--weights",
        metavar="MODEL",
        help="let the model that is trained first start from these weights: a run (runs/x, "
        "runs/x@main:20), the folder of an adapter, a tinker:// path",
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


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the runs of a page."""
    from pathlib import Path

    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        type=Path,
        help="the folder of a run or a sweep, or one with runs in it",
    )


def add_base_url(parser: argparse._ActionsContainer) -> None:
    """Add the option that names another server."""
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="a server to use in place of the hosted Tinker service (default TINKER_BASE_URL)",
    )


def recipe_of(args: argparse.Namespace, path: str | None = None) -> Recipe:
    """Return the recipe (the one at ``path``, if given) with the options that decide its plan."""
    from rlc.api import Recipe
    from rlc.compile import WEIGHTS

    weights = [] if args.weights is None else [f"{WEIGHTS}={args.weights}"]
    options = ((*args.overrides, *weights), args.seed, args.rehearse, args.service)
    return Recipe(path or args.recipe, *options)


def changes_plan(args: argparse.Namespace) -> bool:
    """Return whether any option decides something about the plan."""
    given = args.overrides, args.weights, args.rehearse, args.service
    return any(given) or args.seed is not None


class NoRecipeError(Error):
    """A folder on the command line holds no recipe."""

    exit_status = 2


def recipe_files(paths: Iterable[str]) -> list[str]:
    """Return the files themselves, and every recipe in a folder and its subfolders, in order.

    A file that is named twice comes once. Raise NoRecipeError if a folder has no recipe.
    """
    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        known = len(files)
        for folder, subfolders, names in os.walk(path):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            found = (os.path.join(folder, n) for n in sorted(names) if n.endswith(".rl"))
            files += [name.removeprefix(f".{os.sep}") for name in found]
        if len(files) == known:
            raise NoRecipeError(f"no recipe (*.rl) in {path}")
    return list(dict.fromkeys(files))
