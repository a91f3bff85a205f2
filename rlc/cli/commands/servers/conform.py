"""``rlc conform``: what a server that claims Tinker's protocol has, and what differs."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.catalog.packages import ALL_CALLS
from rlc.cli.output import UsageError, visible
from rlc.errors import Error

if TYPE_CHECKING:
    from rich.console import Console
    from tinker.types import SupportedModel

    from rlc.service import Check, CheckOutcome, ConformReport, Endpoint

HELP = "check a server by value against Tinker's protocol"
DESCRIPTION = (
    "Try every call of Tinker's SDK and every loss on a server, and compare what comes back with "
    "float64 formulas: losses, gradients, optimiser steps, samplers with trainers, checkpoints. "
    "Without an address the server is rlc's own, with the included model."
)
EPILOG = """\
examples:
  rlc conform                                   rlc's own server
  rlc conform http://127.0.0.1:8000             any other
  rlc conform http://127.0.0.1:8000 --only losses --only sampling.seeds
  rlc conform https://… --model NAME --budget 0.05

A check holds, differs (in a value), lacks (the server does not know the call, or refuses it in its
own words), or fails (an error, or no answer). What others may lack is called optional.

exit status: 0 the server conforms, 1 it does not, 2 usage, or it cannot be reached
"""
_STYLES = {"holds": "green", "differs": "red", "lacks": "yellow", "fails": "red"}
_PIPE_WIDTH = 160  # columns if there is no terminal
_OWN = "tiny"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", metavar="URL", help="address (default: a server of rlc)")
    text = "the provider whose server it is (default tinker), as in `service` of a model"
    parser.add_argument("--service", metavar="NAME", help=text)
    parser.add_argument("--model", metavar="NAME", help="base model (default: the cheapest known)")
    text = "a subject, a name or a pattern: losses, losses.ppo, 'sampling.*'; may be repeated"
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help=text)
    text = "the model that is served, or `tiny`: logprobs are compared with its own in float64"
    parser.add_argument("--reference", metavar="FOLDER", help=text)
    text = "mean difference of a sampler's and a trainer's logprobs (default 0.05)"
    parser.add_argument("--tolerance", type=float, metavar="NATS", help=text)
    text = "for a check (default 120)"
    parser.add_argument("--patience", type=float, default=120.0, metavar="SECONDS", help=text)
    parser.add_argument("--yes", action="store_true", help="go ahead at any cost")
    parser.add_argument("--budget", type=float, metavar="USD", help="go ahead if it costs no more")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(error_status=2)


def run(args: argparse.Namespace) -> int:
    from rlc.cli.commands.servers.serve import PACKAGES, require

    require("this", (ALL_CALLS, "numpy"), "tinker")
    if args.url is None and args.service is None:
        require("this", PACKAGES, "serve")
    if args.patience <= 0 or (args.tolerance is not None and not args.tolerance >= 0):
        raise UsageError("--patience is above 0, --tolerance 0 or more")
    from rlc.service import TOLERANCE, Bench, chosen, offered_models, run_checks

    checks = chosen(args.only)
    with _server(args.url, args.service) as endpoint:
        base = args.model or _cheapest(offered_models(endpoint))
        if not endpoint.is_loopback and (cost := _unpaid(base, args)) is not None:
            raise UsageError(cost, "--yes goes ahead, --budget USD if it costs no more than that")
        bench = Bench(
            endpoint,
            base,
            args.reference or (_OWN if base == _OWN else None),
            TOLERANCE if args.tolerance is None else args.tolerance,
            publishes=endpoint.is_loopback,
        )
        note = lambda text: print(visible(text), file=sys.stderr)  # noqa: E731
        tell = _progress(len(checks)) if args.json else _rows(checks)
        report = run_checks(bench, checks, args.patience, tell, note)
    if args.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print_summary(report)
    return 0 if report.conforms else 1


@contextmanager
def _server(url: str | None, service: str | None = None) -> Iterator[Endpoint]:
    """Yield the server under test; without an address or a provider's, one of rlc until the block
    ends."""
    from rlc.plan import TINKER
    from rlc.service import Endpoint, find_endpoint

    if url is not None or service is not None:
        yield find_endpoint(url, service=service or TINKER)
        return
    import asyncio

    from rlc.service import Backend, Server, build_app, load_models, on_a_thread
    from rlc.service.engine import open_engine

    with tempfile.TemporaryDirectory(prefix="rlc-conform-") as folder:
        # Models this small lose time to a second thread.
        engine = open_engine(Path(folder), threads=1, continuous=True)
        try:
            backend = Backend(engine, asyncio.run(load_models(engine, {_OWN: _OWN})))
            with on_a_thread(Server(build_app(backend), backend.futures.close)) as address:
                yield Endpoint(address, "tml-local")
        finally:
            engine.close()


def _cheapest(offered: Sequence[SupportedModel]) -> str:
    """Return the model that is cheapest to train, or the first. Raise Error if there is none."""
    from rlc.catalog import find_model

    usable = (one for one in offered if one.trainable is not False and one.sampleable is not False)
    names = [str(model.model_name) for model in usable]
    if not names:
        raise Error("the server has no model that it trains and samples", "name one with --model")

    def price(name: str) -> float:
        known = find_model(name)
        train = known.price.train if known is not None else None
        return math.inf if train is None else train

    return min(names, key=price)


def _unpaid(base: str, args: argparse.Namespace) -> str | None:
    """Return the tokens and the price of the checks; None if --yes or --budget allows them."""
    from rlc.catalog import find_model
    from rlc.service import MOST_TOKENS as MOST

    known = find_model(base)
    prices = (known.price.prefill, known.price.sample, known.price.train) if known else (None,) * 3
    counts = (MOST.prefill, MOST.sample, MOST.train)
    cost, price = math.inf, "at an unknown price"
    if None not in prices:
        cost = sum(n * p for n, p in zip(counts, prices, strict=True) if p is not None) / 1e6
        price = f"${cost:.4f} by the catalogue's prices"
    if args.yes or (args.budget is not None and cost <= args.budget):
        return None
    tokens = (
        f"{MOST.prefill:,} tokens of prompts, {MOST.sample:,} sampled and {MOST.train:,} trained"
    )
    return f"the checks ask `{base}` for at most {tokens}: {price}"


def _progress(total: int) -> Callable[[CheckOutcome], None] | None:
    """Return a callback that shows on a terminal which check is over; None without one."""
    if not sys.stderr.isatty():
        return None
    done = 0

    def show(found: CheckOutcome) -> None:
        nonlocal done
        done += 1
        line = f"\r\033[K{done} of {total}: {found.check.name} {found.state}"
        print(line, end="" if done < total else "\r\033[K", file=sys.stderr, flush=True)

    return show


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def _rows(checks: Sequence[Check]) -> Callable[[CheckOutcome], None]:
    """Print the head of a table, and return a callback that prints a row of it. Rows are printed as
    the checks are over: what was seen of a server is there if it dies."""
    from rich.table import Table
    from rich.text import Text

    console = _console()
    widths = {"check": max(len(check.name) for check in checks), "": 7, "difference": 10}
    widths["allowed"] = 7

    def show(*cells: Text) -> None:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for width in widths.values():
            table.add_column(width=width, no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row(*cells)
        console.print(table)

    def tell(found: CheckOutcome) -> None:
        worst, text = found.worst, found.said
        if found.state == "holds":
            text = found.check.promise + (f" ({text})" if text else "")
        elif found.state == "lacks" and not found.check.required:
            text += " (optional)"
        show(
            Text(found.check.name),
            Text(found.state, _STYLES[found.state]),
            Text("" if worst is None else f"{worst.found:.2g}"),
            Text("" if worst is None else f"{worst.allowed:g}"),
            Text(visible(text)),
        )

    show(*(Text(title, "dim") for title in widths), Text(""))
    return tell


def _print_summary(report: ConformReport) -> None:
    console = _console()
    counts = Counter(found.state for found in report.found)
    states = ", ".join(f"{number} {state}" for state, number in counts.items())
    compared = f", logprobs compared with {report.reference} in float64" if report.reference else ""
    tokens = f"{report.tokens.prefill:,} tokens of prompts, {report.tokens.sample:,} sampled, "
    tokens += f"{report.tokens.train:,} trained"
    lines = [f"{report.server}, {report.model}{compared}: {states}; {tokens}"]
    if not report.conforms:
        wrong = [found.check.name for found in report.found if not found.conforms]
        lines.append(f"it does not conform: {', '.join(wrong)}")
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
