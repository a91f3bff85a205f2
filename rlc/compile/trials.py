"""A recipe with other values, compiled often: stages that these do not touch are checked once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlc.catalog.declarations import STAGES, SWEEP
from rlc.check.analyse import Analysis, analyse
from rlc.check.rules.budget import report_budgets
from rlc.check.scope import NamedDecl
from rlc.check.stages import TAKEN
from rlc.compile.overrides import put_in
from rlc.lang.ast import BlockDecl, Expr, Name, Node, Recipe, ValueDecl
from rlc.lang.diagnostics import Diagnostic, Diagnostics
from rlc.records import evolve, fields, frozen, has

if TYPE_CHECKING:
    from rlc.data.reading import Reader

# What is put in: a path, and the expression of its value.
Change = tuple[Sequence[Name], Expr]

_AXIS = "{} = […]"  # how a sweep writes what is put in


@frozen(eq=False)
class TriedRecipe:
    """What a recipe is with some values: its stages, and what is wrong with these values alone."""

    analysis: Analysis
    found: Diagnostics


class TrialCompiler:
    """Compiles a sound recipe with some values changed. ``own`` is what it declares without them,
    and ``known`` is what is found in it anyway."""

    def __init__(
        self, recipe: Recipe, own: Analysis, reader: Reader | None, known: Diagnostics
    ) -> None:
        decls = tuple(decl for decl in recipe.decls if decl.kind.id != SWEEP)
        self._recipe, self._reader = evolve(recipe, decls=decls), reader
        self._known = {(item.code, item.span, item.message) for item in known}
        named = {decl.name.id: decl for decl in decls if isinstance(decl, BlockDecl | ValueDecl)}
        self._own, self._reached = own, {name: _reached(name, named) for name in named}

    def with_values(self, changes: Sequence[Change]) -> TriedRecipe:
        """Check the recipe with values put in; the findings are those that it has not without."""
        found = Diagnostics()
        recipe = self._recipe
        for path, value in changes:
            recipe = put_in(recipe, path, value, found, _AXIS)
        analysis = Analysis(())
        if not found.has_errors:
            same = self._unchanged({path[0].id for path, _ in changes})
            analysis = analyse(recipe, found, self._reader, same)
            if not found.has_errors and analysis.complete:
                name = recipe.span.source.name
                report_budgets(analysis.stages, name, found)
                if analysis.expectations:
                    from rlc.check.expectations import report_expectations

                    report_expectations(analysis.expectations, analysis.stages, name, found)
        return TriedRecipe(analysis, Diagnostics(item for item in found if self._is_new(item)))

    def _unchanged(self, changed: set[str]) -> Analysis:
        """Return what depends on none of the declarations that are changed."""
        same = {name for name, reached in self._reached.items() if reached.isdisjoint(changed)}
        values = {name: value for name, value in self._own.values.items() if name in same}
        return Analysis(tuple(s for s in self._own.stages if s.name in same), values=values)

    def _is_new(self, item: Diagnostic) -> bool:
        return (item.code, item.span, item.message) not in self._known


def _reached(name: str, decls: Mapping[str, NamedDecl]) -> set[str]:
    """Return the names of the declarations that one depends on, itself included."""
    reached, waiting = set[tuple[str, bool]](), [(name, True)]
    while waiting:
        one = name, whole = waiting.pop()
        if one in reached or name not in decls:
            continue
        reached.add(one)
        decl = decls[name]
        parts: tuple[Node, ...] = (decl,)
        if isinstance(decl, BlockDecl) and decl.kind.id in STAGES and not whole:
            parts = tuple(field for field in decl.fields if field.name.id in TAKEN)
        is_made = isinstance(decl, ValueDecl)  # an amendment, or a use: of all of what it names
        waiting += [(name, is_made) for name in _names(parts)]
    return {name for name, _ in reached}


def _names(node: Any) -> Iterator[str]:
    """Every name in a node, whatever it names."""
    if isinstance(node, Name):
        yield node.id.partition(".")[0]
    elif isinstance(node, tuple):
        for item in node:
            yield from _names(item)
    elif isinstance(node, Node) and has(type(node)):
        for part in fields(type(node)):
            yield from _names(getattr(node, part.name))
