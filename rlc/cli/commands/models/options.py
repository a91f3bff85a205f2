"""Options of commands that name a model, and sample replies from it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.cli.options import add_base_url
from rlc.cli.output import UsageError, announced

if TYPE_CHECKING:
    from rlc.models.model import Model
    from rlc.service import SamplingRequest


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the name of a model, and what the name may leave open."""
    named = "a run (runs/x, runs/x@main:20), the folder of an adapter or a model, a tinker:// path"
    parser.add_argument("model", help=f"{named}, or a base model")
    parser.add_argument("--base", help="its base model, where the name does not say it")
    parser.add_argument("--renderer", help="how chats become tokens, where that is not known")
    add_base_url(parser)


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--temperature", type=float, default=1.0, metavar="X", help="(default 1)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="X", help="(default 1)")
    text = "the longest reply (default 512)"
    parser.add_argument("--max-tokens", type=int, default=512, metavar="N", help=text)
    text = "text that ends a reply, which keeps it; may be repeated"
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help=text)
    parser.add_argument("--seed", type=int, metavar="N", help="the same replies each time")


def sampling_of(args: argparse.Namespace) -> SamplingRequest:
    """Return the parameters of sampling. Raise UsageError if one is out of its range."""
    from rlc.service import SamplingRequest

    if not 0 <= args.temperature < 100 or not 0 < args.top_p <= 1 or args.max_tokens < 1:
        raise UsageError("--temperature is at least 0, --top-p above 0, and --max-tokens above 0")
    if not all(args.stop):
        raise UsageError("--stop is a text that a reply may have: it cannot be empty")
    return SamplingRequest(
        args.max_tokens, args.temperature, args.top_p, stop=tuple(args.stop), seed=args.seed
    )


def opened(name: str, args: argparse.Namespace) -> Model:
    """Open a model. Raise Error if it cannot be used."""
    with announced(f"opening {name}"):
        from rlc.models.model import model

        return model(name, args.base, args.renderer, args.base_url)


def text_of(given: str) -> str:
    """Return a text, or that of ``@FILE``. Raise UsageError if there is no such file."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {given[1:]}: {error}") from error
