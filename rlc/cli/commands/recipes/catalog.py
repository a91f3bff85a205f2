"""``rlc catalog``: what the language knows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlc.cli.output import UsageError, has_color
from rlc.errors import Error

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from rlc.catalog import NameEntry

HELP = "look up what the language knows"
DESCRIPTION = (
    "Look up builtins, fields of declarations, models and prices, environments, "
    "data sets and codes of findings."
)
EPILOG = """\
examples:
  rlc catalog                        everything, by kind
  rlc catalog grpo                   one thing, with its parameters and formula
  rlc catalog Sudoku                 every entry with the word in it
  rlc catalog --kind base            models with prices, contexts, renderers
  rlc catalog --schema               the JSON schema of a plan

exit status: 0 found, 1 nothing found, 2 usage
"""
_WIDTH = 100  # columns if there is no terminal
_NAMES = 100  # of a kind that an overview lists
_RELATED = 5  # that are listed with an entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("term", nargs="?", help="a name, or a word to look for")
    parser.add_argument("--kind", help="only this kind, such as `advantage`, `loss`, `base`")
    parser.add_argument("--all", action="store_true", help="list all that is related")
    parser.add_argument("--json", action="store_true", help="print JSON")
    text = "print the JSON schema of a plan instead"
    parser.add_argument("--schema", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    from rlc.catalog import as_data, plan_schema

    if args.schema:
        if args.term or args.kind:
            raise UsageError("--schema is the schema of the whole plan: give it alone")
        print(json.dumps(plan_schema(), indent=2, ensure_ascii=False))
        return 0
    found = look_up(args.term, args.kind)
    if args.json:
        print(json.dumps([as_data(entry) for entry in found], indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _WIDTH
        console = Console(no_color=not has_color(sys.stdout), highlight=False, width=width)
        with console.capture() as captured:
            for view in _views(found, args.term, args.kind, args.all):
                console.print(view)
        # A table fills its columns with spaces.
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))
    return 0


def look_up(term: str | None, kind: str | None) -> list[NameEntry]:
    """Return the entries of a term, or all. Raise UsageError for an unknown kind, or Error."""
    from rlc.catalog import entries, find, kinds, words
    from rlc.check import known_values

    among = entries()
    if kind is not None:
        if kind not in kinds():
            raise UsageError(f"there is no kind `{kind}`", known_values(list(kinds()), kind))
        among = tuple(entry for entry in among if entry.kind == kind)
    found = list(among) if term is None else find(term, among)
    if not found:
        advice = known_values(words(among), term)
        raise Error(f"the catalogue has nothing about `{term}`", advice)
    return found


def _views(
    found: Sequence[NameEntry], term: str | None, kind: str | None, every: bool
) -> Iterator[RenderableType]:
    """Yield in full what the term names, or a single entry; list the rest, or the nearest of it."""
    from rlc.catalog import is_named, related

    if term is None and kind is None:
        yield from _overview(found)
        return
    full = [entry for entry in found if term is not None and is_named(term, entry)]
    full = full or (list(found) if len(found) == 1 else [])
    for entry in full:
        yield from _in_full(entry)
    others = [entry for entry in found if entry not in full]
    shown = others if every or not full else related(full, others)[:_RELATED]
    if shown:
        from rich.text import Text

        table = _grid(title="see also" if full else None, title_justify="left")
        table.add_column(no_wrap=True, style="bold")
        table.add_column(no_wrap=True, style="dim")
        table.add_column()
        for entry in shown:
            table.add_row(*map(Text, (entry.name, entry.kind, entry.reason or entry.doc)))
        yield table
        if (more := sum(entry not in shown for entry in others)) > 0:
            yield Text(f"and {more} more: `rlc catalog {term} --all`", style="dim")


def _grid(**options: Any) -> Table:
    from rich.table import Table

    return Table(box=None, show_header=False, pad_edge=False, **options)


def _overview(found: Sequence[NameEntry]) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    from rlc.catalog import kinds

    for kind, noun in kinds().items():
        names = [entry.name for entry in found if entry.kind == kind and entry.reason is None]
        if not names:
            continue
        yield Text.assemble((kind, "bold"), f"  {noun}")
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        yield Padding(Text(", ".join(names[:_NAMES]) + more), (0, 0, 1, 2))
    yield Text("`rlc catalog NAME` says more about one of them.")


def _in_full(entry: NameEntry) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from rlc.explanation import default_of, formulas_of, meaning_of, type_of

    yield Text.assemble((entry.name, "bold"), f"  {entry.kind}: {entry.doc}")
    lines = [Text(f"not possible here: {entry.reason}")] if entry.reason else []
    lines += [Text(entry.usage, style="cyan")] if entry.usage else []
    for line in (*lines, *map(Text, formulas_of(entry))):
        yield Padding(line, (0, 0, 0, 2))
    if entry.params:
        table = Table(box=None, pad_edge=False)
        for title in ("parameter", "type", "default", "meaning"):
            bold = "bold" * (title == "parameter")
            table.add_column(title, no_wrap=title != "meaning", style=bold)
        for param in entry.params:
            cells = param.name, type_of(param), default_of(param), meaning_of(param)
            table.add_row(*map(Text, cells))
        yield Padding(table, (1, 0, 0, 2))
    if entry.facts:
        facts = _grid()
        facts.add_column(no_wrap=True, style="dim")
        facts.add_column()
        for name, value in entry.facts.items():
            facts.add_row(Text(name), Text(str(value)))
        yield Padding(facts, (1, 0, 0, 2))
    if entry.example:
        yield Padding(Text(entry.example, style="cyan"), (1, 0, 0, 2))
    yield ""
