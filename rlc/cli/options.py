"""What several commands have in common: the options that decide a plan, and colour."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rlc.plan.compile import Compiled


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
        "--rehearse",
        action="store_true",
        help="the same job on the embedded tiny model, small and short, without a key",
    )


def compile_plan(args: argparse.Namespace) -> Compiled:
    """The plan that the recipe and the options decide, with all findings."""
    from attrs import evolve

    from rlc.plan.compile import load
    from rlc.plan.rehearse import rehearse

    compiled = load(args.recipe, args.overrides, args.seed)
    if compiled.plan is None or not args.rehearse:
        return compiled
    return evolve(compiled, plan=rehearse(compiled.plan))
