"""``rlc models``: base models with their prices, compared and read anew."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlc.cli.output import UsageError, announced
from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.catalog import BaseModelFacts

HELP = "list base models with their prices, compare them, read them anew"
DESCRIPTION = (
    "List base models: those of the catalogue, and those of rlc.toml and of the user's "
    "configuration. A word chooses the models with it in their name; a whole name, that model."
)
EPILOG = """\
examples:
  rlc models                         all, the cheapest for a typical job first
  rlc models qwen                    those with a word in their name
  rlc models Qwen/Qwen3-8B openai/gpt-oss-20b
  rlc models --refresh               read the published table of Tinker anew
  rlc models --refresh models.json   the same from a file
  rlc models --refresh http://127.0.0.1:8000   what a server has
  rlc models --forget                only what comes with rlc

exit status: 0 found, 1 nothing found, 2 usage, or a table that cannot be read
"""
# Tokens of a typical job. Each prompt is read once in a group, and then from the cache.
_JOB = "job: 100 steps of 16 groups of 8, prompts of 200 tokens, replies of 500"
_TYPICAL = {
    "prefill": 100 * 16 * 200,
    "cached": 100 * 16 * 7 * 200,
    "sample": 100 * 16 * 8 * 500,
    "train": 100 * 16 * 8 * 700,
}
_TITLES = ("model", "context", *_TYPICAL, "job", "LoRA rank", "priced")
_SECONDS, _MOST_BYTES = 20, 10_000_000
_AGENT = {"User-Agent": "rlc (models --refresh)"}  # without one the server refuses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a name, or a word in names")
    parser.add_argument("--json", action="store_true", help="print data, with unknown as null")
    source = "read models anew from a server's address, from a file of Tinker's form, or, if "
    source += "nothing is named, from Tinker's published table; kept in the user's configuration"
    parser.add_argument("--refresh", nargs="?", const="", metavar="SOURCE", help=source)
    parser.add_argument("--forget", action="store_true", help="remove what was read anew")


def run(args: argparse.Namespace) -> int:
    from rlc.catalog import settings_of, table_file
    from rlc.cli.output import print_findings

    if args.forget:
        if args.refresh is not None or args.names:
            raise UsageError("--forget removes what was read anew, and takes nothing else")
        if os.path.exists(table_file()):
            os.remove(table_file())
        return 0
    if args.refresh is not None:
        _refresh(args.refresh)
        return 0
    for stated in settings_of(""):
        print_findings(stated.found)
    models = _chosen(args.names)
    models.sort(key=lambda one: (math.inf if (usd := _job(one)) is None else usd, one.base))
    if args.json:
        print(json.dumps([_as_data(model) for model in models], indent=2, ensure_ascii=False))
    else:
        _show(models, in_full=bool(args.names))
    return 0


def _job(model: BaseModelFacts) -> float | None:
    """Return USD of a typical job; None if a price is unknown."""
    from rlc.catalog import part_cost

    costs = [part_cost(n, getattr(model.price, kind)) for kind, n in _TYPICAL.items()]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _all() -> list[BaseModelFacts]:
    from rlc.catalog import model_at, model_names, settings_of

    stated = (base for one in settings_of("") for base in one.models)
    names = dict.fromkeys([*model_names(), *stated])
    return [model for name in names if (model := model_at(name, "")) is not None]


def _chosen(words: Sequence[str]) -> list[BaseModelFacts]:
    """Return the models of names and words, or all. Raise Error if a word is in no name."""
    from rlc.check import known_values

    models = _all()
    chosen: dict[str, BaseModelFacts] = {}
    for word in words:
        found = [model for model in models if model.base.lower() == word.lower()]
        found = found or [model for model in models if word.lower() in model.base.lower()]
        if not found:
            names = [model.base for model in models]
            raise Error(f"no model is called `{word}`", known_values(names, word))
        chosen |= {model.base: model for model in found}
    return list(chosen.values()) if words else models


def _as_data(model: BaseModelFacts) -> dict[str, Any]:
    from rlc.catalog import is_stale
    from rlc.records import asdict

    return {
        **asdict(model),
        "typical_job": _job(model),
        "stale": is_stale(model.as_of),
        "source": model.source or None,
    }


def _show(models: Sequence[BaseModelFacts], in_full: bool) -> None:
    from rlc.catalog import how_old

    rows = [_TITLES, *map(_row, models)]
    name, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *cells in rows:
        aligned = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"{first:{name}}  {'  '.join(aligned)}")
    print(f"\nUSD of a million tokens; ? unknown; {_JOB}")
    for source, day in {_source(model): model.as_of for model in models if model.as_of}.items():
        old = how_old(day)
        print(f"prices of {source}{old}{': `rlc models --refresh`' if old else ''}")
    for model in models if in_full else ():
        size = "?" if model.lora is None else f"{sum(model.lora):,} parameters for each rank"
        print(f"\n{model.base}\n  service    {model.service}")
        print(f"  renderers  {', '.join(model.renderers) or '?'}\n  LoRA       {size}")
        print(f"  source     {_source(model) or '?'}")
        if model.unconfirmed:
            print(f"  not sure   {', '.join(model.unconfirmed)}")


def _source(model: BaseModelFacts) -> str:
    day = model.as_of or ""
    return model.source if day in model.source else f"{day}, {model.source}"


def _row(model: BaseModelFacts) -> tuple[str, ...]:
    def cell(number: float | None, form: str) -> str:
        return "?" if number is None else form.format(number)

    return (
        model.base,
        cell(model.context, "{:,}"),
        *(cell(getattr(model.price, kind), "{:g}") for kind in _TYPICAL),
        cell(_job(model), "${:,.2f}"),
        cell(model.max_rank, "to {}"),
        model.as_of or "?",
    )


def _refresh(source: str) -> None:
    """Read models anew, keep them, and say what is new. Raise Error if that cannot be done."""
    from rlc.catalog import keep_table, published_at, table_file

    source = source or published_at()
    with announced(f"reading {source}"):
        is_server = source.startswith(("http://", "https://")) and not source.endswith(".json")
        models = _served(source) if is_server else _published(source)
    known = {model.base for model in _all()}
    keep_table(source, models)
    print(f"{len(models):,} models of {source}, kept in {table_file()}")
    if new := [name for name in models if name not in known]:
        print(f"new: {', '.join(new)}")


def _served(url: str) -> dict[str, dict[str, Any]]:
    """Return the models of a server, with their contexts."""
    from rlc.catalog import find_model
    from rlc.service import find_endpoint, offered_models, require_packages

    require_packages("tinker")
    named = {one.model_name: one for one in offered_models(find_endpoint(url)) if one.model_name}
    if not named:
        raise Error(f"{url} names no models: it has no capabilities to read")
    known = {name: find_model(name) for name in named}
    return {  # what a server holds of a model says nothing of other servers
        name: {"context": one.max_context_length} if one.max_context_length else {}
        for name, one in named.items()
        if (facts := known[name]) is None or facts.context is None
    }


def _published(source: str) -> dict[str, dict[str, Any]]:
    """Return the models of a table in Tinker's form, from an address or a file."""
    import urllib.request

    from rlc.catalog import TableError, published_models

    try:
        if source.startswith("http"):
            request = urllib.request.Request(source, headers=_AGENT)
            with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
                text = str(reply.read(_MOST_BYTES), "utf-8")
        else:
            with open(source, encoding="utf-8-sig") as file:
                text = file.read()
        return published_models(text)
    except TableError as error:
        raise TableError(f"{source} is no table of models: {error.message}") from error
    except (OSError, ValueError) as error:
        hint = "save the table where there is a way to it: `rlc models --refresh FILE` reads that"
        raise UsageError(f"cannot read {source}: {error}", hint) from error
