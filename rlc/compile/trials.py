"""A recipe with other values, compiled often: what trials share is evaluated once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve, fields, frozen, has

from rlc.catalog.declarations import STAGES, SWEEP
from rlc.catalog.records import Param
from rlc.check.analyse import Analysis, analyse
from rlc.check.evaluate import Evaluator
from rlc.check.rules import Ruled
from rlc.check.rules.budget import report_budgets
from rlc.check.scope import NamedDecl, Scope
from rlc.check.stages import TAKEN
from rlc.check.values import Value
from rlc.compile.overrides import put_in
from rlc.lang.ast import BlockDecl, Decl, Expr, Name, Node, Recipe, ValueDecl
from rlc.lang.diagnostics import Diagnostic, Diagnostics

if TYPE_CHECKING:
    from rlc.data.reading import Reader

T = TypeVar("T")

# What is put in: a path, and the expression of its value.
Change = tuple[Sequence[Name], Expr]

_AXIS = "{} = […]"  # how a sweep writes what is put in


@frozen(eq=False, repr=False, slots=False)
class Tried:
    """What a recipe is with some values: its stages, and what is wrong with these values alone."""

    analysis: Analysis
    found: Diagnostics


class TrialCompiler:
    """Compiles one recipe with some values changed. ``known`` is what is found in it anyway."""

    def __init__(self, recipe: Recipe, reader: Reader | None, known: Diagnostics) -> None:
        decls = tuple(decl for decl in recipe.decls if decl.kind.id != SWEEP)
        self._recipe, self._reader = evolve(recipe, decls=decls), reader
        self._known = {(item.code, item.span, item.message) for item in known}
        self._put: dict[tuple[int, int, int], tuple[Decl, object]] = {}
        self._memo = _Memo({d.name.id: d for d in decls if isinstance(d, BlockDecl | ValueDecl)})

    def with_values(self, changes: Sequence[Change]) -> Tried:
        """Check the recipe with values put in; the findings are those that it has not without."""
        found = Diagnostics()
        recipe = self._recipe
        for path, value in changes:
            recipe = self._put_in(recipe, path, value, found)
        analysis = Analysis((), ())
        if not found.has_errors:
            analysis = analyse(recipe, found, self._reader, self._memo.evaluator, self._memo.ruled)
            if not found.has_errors and analysis.complete:
                name = recipe.span.source.name
                report_budgets(analysis.stages, name, found)
                if analysis.expectations:
                    from rlc.check.expectations import report_expectations

                    report_expectations(analysis.expectations, analysis.stages, name, found)
        return Tried(analysis, Diagnostics(item for item in found if self._is_new(item)))

    def _put_in(
        self, recipe: Recipe, path: Sequence[Name], value: Expr, found: Diagnostics
    ) -> Recipe:
        """The recipe with a value put in: the same value makes the same declaration each time."""
        names = [getattr(decl, "name", None) for decl in recipe.decls]
        place = next((i for i, name in enumerate(names) if name and name.id == path[0].id), None)
        if place is None:
            return put_in(recipe, path, value, found, _AXIS)
        old = recipe.decls[place]
        key = id(old), id(path), id(value)
        if key not in self._put:
            before = len(found)
            changed = put_in(recipe, path, value, found, _AXIS)
            if len(found) > before:
                return changed
            # With what it is made of, so that their ids stay theirs.
            self._put[key] = changed.decls[place], (old, path, value)
        decls = list(recipe.decls)
        decls[place] = self._put[key][0]
        return evolve(recipe, decls=tuple(decls))

    def _is_new(self, item: Diagnostic) -> bool:
        return (item.code, item.span, item.message) not in self._known


class _Memo:
    """What was made of nodes of the syntax tree: values and stages.

    A change replaces every node around it. So what a node stands for is the same in two trials if
    all declarations that it names, and that these name in turn, are the same nodes in both.
    """

    def __init__(self, base: Mapping[str, NamedDecl]) -> None:
        self.base = base  # the declarations of the recipe itself
        self.made: dict[Any, Any] = {}
        self.ruled: Ruled = {}
        self.derived: dict[Any, Any] = {}
        self._reached: dict[int, frozenset[str]] = {}
        self._names: dict[int, tuple[Node, frozenset[str]]] = {}

    def evaluator(self, scope: Scope, recipe: str, found: Diagnostics) -> Evaluator:
        return _SharingEvaluator(self, scope, recipe, found)

    def names(self, node: Node) -> frozenset[str]:
        """The names in a node."""
        if id(node) not in self._names:
            self._names[id(node)] = node, frozenset(_names(node))  # which keeps its id its own
        return self._names[id(node)][1]

    def reached(self, node: Node, decls: Mapping[str, NamedDecl]) -> Mapping[str, list[Node]]:
        """The names that a node depends on, with the parts of their declarations that matter."""
        found: dict[str, list[Node]] = {}
        seen, waiting = set[tuple[str, bool]](), [node]
        while waiting:
            node = waiting.pop()
            whole = isinstance(node, ValueDecl)  # an amendment, or a use, is made of all of it
            new = {(name, whole) for name in self.names(node)} - seen
            seen |= new
            for name, _ in new:
                parts = _parts(decls[name], whole) if name in decls else []
                found.setdefault(name, []).extend(parts)
                waiting += parts
        return found

    def reached_in_base(self, node: Node) -> Set[str]:
        """The names that a node depends on in the recipe itself."""
        if id(node) not in self._reached:
            self._reached[id(node)] = frozenset(self.reached(node, self.base))
        return self._reached[id(node)]


class _SharingEvaluator(Evaluator):
    def __init__(self, memo: _Memo, scope: Scope, recipe: str, found: Diagnostics) -> None:
        super().__init__(scope, recipe, found)
        self._memo = memo
        self._decls: dict[str, NamedDecl] = {**scope.templates, **scope.decls}
        self._changed = {
            name: decl for name, decl in self._decls.items() if memo.base.get(name) is not decl
        }

    def declared(self, decl: NamedDecl) -> Value | None:
        if decl.name.id not in self._done and not self._open:
            self._done[decl.name.id] = self.once(
                decl, partial(super().declared, decl), ("declared",)
            )
        return super().declared(decl)

    def value(self, expr: Expr, want: Param) -> Value | None:
        if self._open:  # a part of a declaration, whose value is shared as a whole
            return super().value(expr, want)
        asked = want.name, want.type, want.many, want.named
        return self.once(expr, partial(super().value, expr, want), asked)

    def once(self, node: Node, evaluate: Callable[[], T], asked: tuple[Any, ...] = ()) -> T:
        known = self._memo.made
        key = id(node), self._reached(node), *asked
        if key not in known:
            before = len(self.found)
            value = evaluate()
            if len(self.found) > before:
                return value  # what is found is said in each trial
            known[key] = value
        made: T = known[key]
        return made

    def derived(self, make: Callable[..., T], *values: Value | None) -> T:
        known, key = self._memo.derived, (make, *map(id, values))
        if key not in known:
            known[key] = super().derived(make, *values), values  # with them: their ids stay theirs
        made: T = known[key][0]
        return made

    def _reached(self, node: Node) -> frozenset[int]:
        """The ids of the declarations that a node depends on, of those that are not the recipe's
        own."""
        if self._memo.reached_in_base(node).isdisjoint(self._changed):
            return frozenset()
        reached = self._memo.reached(node, self._decls)
        changed = (parts for name, parts in reached.items() if name in self._changed)
        return frozenset(id(part) for parts in changed for part in parts)


def _parts(decl: NamedDecl, whole: bool) -> Sequence[Node]:
    """The nodes of a declaration that matter to what names it."""
    if isinstance(decl, BlockDecl) and decl.kind.id in STAGES and not whole:
        return [field for field in decl.fields if field.name.id in TAKEN]
    return [decl]


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
