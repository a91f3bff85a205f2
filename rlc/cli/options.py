"""Options of several commands: those that decide a plan, paths of recipes, addresses of servers."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.api import Recipe

KEY_VARIABLE = "RLC_SERVE_KEY"


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide the plan with the recipe."""
    add_set(parser)
    text = "let the model that is trained first start from these weights: a run (runs/x, "
    text += "runs/x@main:20), the folder of an adapter, a tinker:// path"
    parser.add_argument("--weights", metavar="MODEL", help=text)
    parser.add_argument("--seed", type=int, help="seed of every random choice (default 1)")
    text = "train on another service than the model's own: a provider such as `together`, `tinker` "
    text += "with --base-url for a server of your own, `local` for the embedded engine"
    parser.add_argument("--service", metavar="NAME", help=text)
    text = "the same job on the embedded tiny model, small and short, without a key"
    parser.add_argument("--rehearse", action="store_true", help=text)


def add_set(parser: argparse.ArgumentParser) -> None:
    text, name = "override a param (learning_rate=1e-4) or a field (main.steps=10)", "NAME=VALUE"
    parser.add_argument(
        "--set", dest="overrides", metavar=name, action="append", default=[], help=text
    )


def add_reuse(parser: argparse.ArgumentParser, runs: bool = True) -> None:
    """Add where earlier runs are that have done some of the work; with ``runs`` also how not to."""
    from pathlib import Path

    if runs:
        text = "compute everything anew: take nothing from earlier runs"
        parser.add_argument("--fresh", action="store_true", help=text)
    text = "another folder of runs to take finished work from, beside runs/ (and RLC_REUSE_FROM)"
    parser.add_argument(
        "--reuse-from", metavar="DIR", type=Path, action="append", default=[], help=text
    )


def add_runs(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    text = "the folder of a run or a sweep, or one with runs in it"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help=text)


def add_base_url(parser: argparse._ActionsContainer) -> None:
    text = "a server to use in place of the hosted Tinker service (default TINKER_BASE_URL)"
    parser.add_argument("--base-url", metavar="URL", help=text)


def usd(text: str) -> float:
    """Return an amount of dollars, as an argument says it."""
    try:
        value = float(text.removeprefix("$"))
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of dollars, such as 0.50")
    return value


def add_address(parser: argparse.ArgumentParser, port: int) -> None:
    """Add the address that a server listens at, by default on loopback."""
    from rlc.service import LOOPBACK

    usual = f"default {port}; 0: a free one" if port else "default a free one"
    parser.add_argument("--port", type=int, default=port, help=f"port ({usual})")
    parser.add_argument("--host", default=LOOPBACK, help=f"address (default {LOOPBACK})")
    text = f"let --host be other than loopback; the key in {KEY_VARIABLE} is then required"
    parser.add_argument("--allow-remote", action="store_true", help=text)


def is_local(host: str) -> bool:
    """Return whether only programs on this machine reach an address."""
    from rlc.service import LOOPBACK

    return host in (LOOPBACK, "localhost")


def key_of(args: argparse.Namespace) -> str | None:
    """Return the key of clients, or None. Raise Error if other machines are let in without one."""
    key = os.environ.get(KEY_VARIABLE) or None
    if not is_local(args.host):
        if not args.allow_remote:
            remedy = "add --allow-remote to mean it"
            raise Error(f"--host {args.host} would let other machines in; {remedy}")
        if key is None:
            raise Error(f"--allow-remote needs a key for the clients in {KEY_VARIABLE}")
    return key


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
