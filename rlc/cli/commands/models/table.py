"""``rlc models``: base models with their prices, compared and read anew."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlc.cli.output import UsageError, announced, has_color
from rlc.errors import Error

if TYPE_CHECKING:
    from rich.table import Table

    from rlc.catalog import BaseModelFacts

HELP = "list base models with their prices, compare them, read them anew"
DESCRIPTION = (
    "List base models: those of the catalogue, and those of rlc.toml and of the user's "
    "configuration. A word chooses the models with it in their name; a whole name, that model."
)
EPILOG = """\
examples:
  rlc models                         all, the cheapest for a typical job first
  rlc models qwen --sort context     those with a word in their name
  rlc models Qwen/Qwen3-8B openai/gpt-oss-20b
  rlc models --refresh               read the published table of Tinker anew
  rlc models --refresh models.json   the same from a file
  rlc models --refresh http://127.0.0.1:8000   what a server has
  rlc models --forget                only what comes with rlc

exit status: 0 found, 1 nothing found, 2 usage, or a table that cannot be read
"""
# Tokens of a typical job: 100 steps of 16 groups of 8, with prompts of 200 tokens and replies of
# 500. Each prompt is read once in a group, and then from the cache.
_GROUPS, _SIZE, _PROMPT, _REPLY = 100 * 16, 8, 200, 500
TYPICAL = {
    "prefill": _GROUPS * _PROMPT,
    "cached": _GROUPS * (_SIZE - 1) * _PROMPT,
    "sample": _GROUPS * _SIZE * _REPLY,
    "train": _GROUPS * _SIZE * (_PROMPT + _REPLY),
}
_JOB = "job: 100 steps of 16 groups of 8, prompts of 200 tokens, replies of 500"
_WIDTH, _LISTED, _SECONDS, _MOST_BYTES = 140, 5, 20, 10_000_000
_AGENT = {"User-Agent": "rlc (models --refresh)"}  # without one the server refuses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a name, or a word in names")
    parser.add_argument(
        "--sort",
        choices=("price", "name", "context"),
        default="price",
        help="by the price of a typical job (the default), by name, or by context",
    )
    parser.add_argument("--json", action="store_true", help="print data, with unknown as null")
    parser.add_argument(
        "--refresh",
        nargs="?",
        const="",
        metavar="SOURCE",
        help="read models anew: from a server's address, a file of Tinker's form, or, if nothing "
        "is named, from Tinker's published table; kept in the user's configuration",
    )
    parser.add_argument("--forget", action="store_true", help="remove what was read anew")


def run(args: argparse.Namespace) -> int:
    from rlc.catalog import forget_tables, settings_of
    from rlc.cli.output import print_findings

    if args.forget:
        if args.refresh is not None or args.names:
            raise UsageError("--forget removes what was read anew, and takes nothing else")
        print("removed" if forget_tables() else "nothing was read anew")
        return 0
    if args.refresh is not None:
        _refresh(args.refresh)
        return 0
    for stated in settings_of(""):
        print_findings(stated.found)
    models = _chosen(args.names)
    order: Any = {
        "price": lambda model: (_or_last(job_price(model)), model.base),
        "name": lambda model: model.base.lower(),
        "context": lambda model: (-(model.context or 0), model.base),
    }[args.sort]
    models.sort(key=order)
    if args.json:
        print(json.dumps([_as_data(model) for model in models], indent=2, ensure_ascii=False))
    else:
        _show(models, in_full=bool(args.names))
    return 0


def job_price(model: BaseModelFacts) -> float | None:
    """Return USD of a typical job; None if a price is unknown."""
    from rlc.catalog import part_cost

    costs = [part_cost(n, getattr(model.price, kind)) for kind, n in TYPICAL.items()]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _or_last(number: float | None) -> float:
    return math.inf if number is None else number


def _all() -> list[BaseModelFacts]:
    from rlc.catalog import model_at, model_names, stated_names

    names = dict.fromkeys([*model_names(), *stated_names("")])
    return [model for name in names if (model := model_at(name, "")) is not None]


def _chosen(words: Sequence[str]) -> list[BaseModelFacts]:
    """Return the models of names and words, or all. Raise Error if a word is in no name."""
    from rlc.catalog import find_retired
    from rlc.check import known_values

    models = _all()
    chosen: dict[str, BaseModelFacts] = {}
    for word in words:
        found = [model for model in models if model.base.lower() == word.lower()]
        found = found or [model for model in models if word.lower() in model.base.lower()]
        if not found:
            if (retired := find_retired(word)) is not None:
                message = f"the service no longer has {word} (since {retired.since})"
                raise Error(message, f"the nearest is {retired.use}")
            names = [model.base for model in models]
            raise Error(f"no model is called `{word}`", known_values(names, word))
        chosen |= {model.base: model for model in found}
    return list(chosen.values()) if words else models


def _as_data(model: BaseModelFacts) -> dict[str, Any]:
    from rlc.catalog import is_stale
    from rlc.records import values_of

    return {
        "model": model.base,
        "service": model.service,
        "context": model.context,
        "prices": values_of(model.price),
        "typical_job": job_price(model),
        "as_of": model.as_of,
        "source": model.source or None,
        "stale": is_stale(model.as_of),
        "max_rank": model.max_rank,
        "lora_parameters_at_rank_1": None if model.lora is None else sum(model.lora),
        "renderers": list(model.renderers),
        "unconfirmed": list(model.unconfirmed),
    }


def _show(models: Sequence[BaseModelFacts], in_full: bool) -> None:
    from rich.console import Console

    from rlc.catalog import STALE_DAYS, is_stale

    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(no_color=not has_color(sys.stdout), highlight=False, width=width)
    with console.capture() as captured:
        console.print(_table(models))
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
    print(f"\nUSD of a million tokens; ? unknown; {_JOB}")
    for source, day in {_source(model): model.as_of for model in models if model.as_of}.items():
        old = f", more than {STALE_DAYS} days old: `rlc models --refresh`" if is_stale(day) else ""
        print(f"prices of {source}{old}")
    for model in models if in_full else ():
        print(f"\n{model.base}")
        for name, value in _details(model).items():
            print(f"  {name:10} {value}")


def _source(model: BaseModelFacts) -> str:
    day = model.as_of or ""
    return model.source if day in model.source else f"{day}, {model.source}"


def _table(models: Sequence[BaseModelFacts]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from rlc.catalog import PRICE_KINDS

    shown = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    shown.add_column("model", overflow="fold")
    for title in ("context", *PRICE_KINDS, "job", "LoRA rank", "priced"):
        shown.add_column(title, justify="right", no_wrap=True)
    for model in models:
        prices = [_or_unknown(getattr(model.price, kind), "{:g}") for kind in PRICE_KINDS]
        cells = [
            model.base,
            _or_unknown(model.context, "{:,}"),
            *prices,
            _or_unknown(job_price(model), "${:,.2f}"),
            "?" if model.max_rank is None else f"to {model.max_rank}",
            model.as_of or ("" if model.service == "local" else "?"),
        ]
        shown.add_row(*map(Text, cells))
    return shown


def _or_unknown(number: float | None, form: str) -> str:
    return "?" if number is None else form.format(number)


def _details(model: BaseModelFacts) -> dict[str, str]:
    size = "?" if model.lora is None else f"{sum(model.lora):,} parameters for each rank"
    found = {
        "service": model.service,
        "renderers": ", ".join(model.renderers) or "?",
        "LoRA": size,
        "source": _source(model) or "?",
    }
    if model.unconfirmed:
        found["not sure"] = ", ".join(model.unconfirmed)
    return found


def _refresh(source: str) -> None:
    """Read models anew, keep them, and say what is new. Raise Error if that cannot be done."""
    from rlc.catalog import keep_table, published_at

    source = source or published_at()
    with announced(f"reading {source}"):
        is_server = source.startswith(("http://", "https://")) and not source.endswith(".json")
        models = _served(source) if is_server else _published(source)
    before = {model.base: model for model in _all()}
    path = keep_table(os.path.abspath(source) if os.path.exists(source) else source, models)
    print(f"{len(models):,} models of {source}, kept in {path}")
    new = [name for name in models if name not in before]
    priced = [name for name, facts in models.items() if _is_dearer(before.get(name), facts)]
    for what, names in (("new", new), ("at another price", priced)):
        if names:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            print(f"  {what}: {', '.join(names[:_LISTED])}{more}")


def _is_dearer(known: BaseModelFacts | None, facts: Mapping[str, Any]) -> bool:
    from rlc.catalog import PRICE_KINDS

    given = {kind: facts[kind] for kind in PRICE_KINDS if facts.get(kind) is not None}
    return known is not None and any(
        getattr(known.price, kind) != usd for kind, usd in given.items()
    )


def _served(url: str) -> dict[str, dict[str, Any]]:
    """Return the models of a server, with their contexts."""
    from rlc.service import find_endpoint, offered_models, require_packages

    require_packages("tinker")
    offered = offered_models(find_endpoint(url))
    models = {
        one.model_name: {"context": one.max_context_length} for one in offered if one.model_name
    }
    if not models:
        raise Error(f"{url} names no models: it has no capabilities to read")
    return models


def _published(source: str) -> dict[str, dict[str, Any]]:
    """Return the models of a table in Tinker's form, from an address or a file."""
    from rlc.catalog import TableError, published_models

    try:
        text = _fetched(source) if source.startswith("http") else _read(source)
        return published_models(text)
    except TableError as error:
        raise TableError(f"{source} is no table of models: {error.message}") from error


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(
            f"cannot read {path}: {what}", "give a file, or the address of a server"
        ) from error


def _fetched(url: str) -> str:
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(url, headers=_AGENT)
        with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
            return str(reply.read(_MOST_BYTES), "utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        hint = "save it where there is a way to it, and give the file: `rlc models --refresh FILE`"
        raise UsageError(f"cannot read {url}: {why}", hint) from error
