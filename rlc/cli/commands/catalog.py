"""``rlc catalog``: what the language knows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import asdict

from rlc.cli.options import has_color, tell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlc.catalog.search import Entry, Parameter

_EPILOG = """\
examples:
  rlc catalog                        everything, by kind
  rlc catalog grpo                   one thing, with its parameters and formula
  rlc catalog Sudoku                 whatever has the word in it
  rlc catalog --kind base            models with prices, contexts, renderers
  rlc catalog --schema               the JSON schema of a plan

exit status: 0 found, 1 nothing found, 2 usage
"""
_CHOICES = 16  # of a parameter that are listed
_WIDTH = 100  # columns where there is no terminal
_NAMES = 100  # of a kind that an overview lists


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "catalog",
        help="look up what the language knows",
        description="Look up builtins, fields of declarations, models and prices, environments, "
        "data sets and codes of findings.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("term", nargs="?", help="a name, or a word to look for")
    parser.add_argument("--kind", help="only this kind, such as `advantage`, `loss`, `base`")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON schema of a plan instead"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rlc.catalog.search import entries, find, kinds, words
    from rlc.check.suggest import known_values

    if args.schema:
        return _schema(args)
    among = entries()
    if args.kind is not None:
        if args.kind not in kinds():
            advice = known_values(list(kinds()), args.kind)
            return tell(f"there is no kind `{args.kind}`", 2, advice)
        among = tuple(entry for entry in among if entry.kind == args.kind)
    found = list(among) if args.term is None else find(args.term, among)
    if not found:
        advice = known_values(words(among), args.term)
        return tell(f"the catalogue has nothing about `{args.term}`", 1, advice)
    if args.json:
        print(json.dumps([asdict(entry) for entry in found], indent=2, ensure_ascii=False))
    else:
        _print(_views(found, args.term, args.kind))
    return 0


def _schema(args: argparse.Namespace) -> int:
    from rlc.catalog.schema import plan_schema

    if args.term or args.kind:
        return tell("--schema is the schema of the whole plan: give it alone", 2)
    print(json.dumps(plan_schema(), indent=2, ensure_ascii=False))
    return 0


def _print(views: Iterable[RenderableType]) -> None:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(no_color=not has_color(sys.stdout), highlight=False, width=width)
    for view in views:
        console.print(view)


def _views(found: Sequence[Entry], term: str | None, kind: str | None) -> Iterator[RenderableType]:
    """In full what is named so, or is all there is; the rest in a line each."""
    from rlc.catalog.search import is_named

    if term is None and kind is None:
        yield from _overview(found)
        return
    full = [entry for entry in found if term is not None and is_named(term, entry)]
    full = full or (list(found) if len(found) == 1 else [])
    for entry in full:
        yield from _in_full(entry)
    others = [entry for entry in found if entry not in full]
    if others:
        yield from _list(others, "see also" if full else None)


def _overview(found: Sequence[Entry]) -> Iterator[RenderableType]:
    """The names of each kind."""
    from rich.padding import Padding
    from rich.text import Text

    from rlc.catalog.search import kinds

    for kind, noun in kinds().items():
        names = [entry.name for entry in found if entry.kind == kind and entry.reason is None]
        if not names:
            continue
        yield Text.assemble((kind, "bold"), f"  {noun}")
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        yield Padding(Text(", ".join(names[:_NAMES]) + more), (0, 0, 1, 2))
    yield Text("`rlc catalog NAME` says more about one of them.")


def _list(found: Sequence[Entry], title: str | None) -> Iterator[RenderableType]:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for entry in found:
        table.add_row(entry.name, entry.kind, entry.reason or entry.doc)
    yield table


def _in_full(entry: Entry) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    yield Text.assemble((entry.name, "bold"), f"  {entry.kind}: {entry.doc}")
    if entry.reason:
        yield Padding(Text(f"not possible here: {entry.reason}"), (0, 0, 0, 2))
    if entry.usage:
        yield Padding(Text(entry.usage, style="cyan"), (0, 0, 0, 2))
    for line in entry.formula or _expansion(entry):
        yield Padding(Text(line), (0, 0, 0, 2))
    if entry.params:
        yield Padding(_parameters(entry.params), (1, 0, 0, 2))
    if entry.facts:
        yield Padding(_facts(entry.facts), (1, 0, 0, 2))
    yield ""


def _expansion(entry: Entry) -> list[str]:
    """What a preset of advantages is a name for."""
    from rlc.catalog.index import find_builtin
    from rlc.explanation.presets import preset_formulas

    builtin = find_builtin("advantage", entry.name)
    return [] if builtin is None else [formula.text for formula in preset_formulas(builtin)]


def _parameters(params: Sequence[Parameter]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("parameter", "type", "default", "meaning"):
        table.add_column(title, no_wrap=title != "meaning", style="bold" * (title == "parameter"))
    for param in params:
        table.add_row(param.name, _type(param), _default(param), "; ".join(_notes(param)))
    return table


def _type(param: Parameter) -> str:
    from rlc.catalog.index import KINDS

    noun = KINDS[param.type].noun if param.type in KINDS else param.type
    return f"list of {noun}" if param.many else noun


def _default(param: Parameter) -> str:
    """As a recipe would write it; what has no short form is told by its meaning."""
    from rlc.plan.units import show

    if param.required:
        return "required"
    parts = param.default if isinstance(param.default, list) else [param.default]
    if any(isinstance(part, dict) and part for part in parts):
        return "…"
    return "none" if param.default is None else show(param.default, param.type)


def _notes(param: Parameter) -> list[str]:
    """What it means, and what it may be."""
    from rlc.catalog.records import Param
    from rlc.check.scalars import bounds

    limits = bounds(
        Param(
            param.name,
            param.type,
            param.doc,
            low=param.low,
            high=param.high,
            above=param.above,
            below=param.below,
        )
    )
    few = param.choices if len(param.choices) <= _CHOICES else ()
    choices = f"one of {', '.join(few)}" if few else ""
    return [note for note in (param.doc, choices, limits) if note]


def _facts(facts: dict[str, object]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for name, value in facts.items():
        table.add_row(name, str(value))
    return table
