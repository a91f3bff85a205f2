"""Uses of declarations with parameters: ``digits(size = 5)``. Each is a copy of the declaration
with the arguments put in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rlc.catalog import DECLARATIONS, KINDS, REQUIRED, Param, how_to_make
from rlc.check.bind import Owner, bind
from rlc.check.reuse.blocks import block_of, made_block
from rlc.check.reuse.copies import filled, marked, names_in
from rlc.check.reuse.types import NUMERIC, WORD, typed
from rlc.check.scope import NAMEABLE, declared_as, is_made
from rlc.check.values import UnknownValue, Value
from rlc.lang import (
    Amend,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Label,
    Name,
    Negative,
    Number,
    Parameter,
    Span,
    String,
    ValueDecl,
)
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.check.reuse.needs import ReuseContext


MAX_COPIES = 2_000
AnyDecl = TypeVar("AnyDecl", bound=BlockDecl | ValueDecl)


class Uses:
    """The copies that one recipe makes of its declarations with parameters."""

    def __init__(self, evaluator: ReuseContext) -> None:
        self._evaluator = evaluator
        self._found = evaluator.found
        self._made: dict[int, tuple[Call, BlockDecl | ValueDecl | None]] = {}  # calls keep their id
        self._wants: dict[str, tuple[Param, ...]] = {}
        self._defaults: dict[str, dict[str, Expr]] = {}

    def copy(self, call: Call) -> BlockDecl | ValueDecl | None:
        """The declaration that a use stands for, with its arguments put in and no parameters; None
        after a report, and where an argument is not known."""
        if id(call) not in self._made:
            self._made[id(call)] = call, self._copied(call)
        return self._made[id(call)][1]

    def value(self, call: Call, name: Name, want: Param) -> Value | None:
        """The value of a use where it stands, or None after a report."""
        evaluator = self._evaluator
        decl = evaluator.scope.templates[name.id]
        kinds = NAMEABLE.get(want.type, (want.type,))
        if decl.kind.id not in kinds:
            label = Label(decl.name.span, "declared here")
            noun = KINDS[want.type].noun
            message = f"`{name.id}()` is {declared_as(decl)}, where {noun} belongs"
            self._found.error("RL0201", name.span, message, how_to_make(want.type), label)
        elif want.type in NAMEABLE:
            self._report_nameless(call, decl.kind.id)
        elif evaluator.may_use(decl, name) and (made := self.copy(call)) is not None:
            with evaluator.inside(name.id), self.labelled(decl, call):
                whole = self.block(made) if is_made(made) else made
                return None if whole is None else evaluator.made(whole)
        return None

    def amended(self, amend: Amend, want: Param) -> Value | None:
        """The value of a block that is amended where it stands, or None after a report."""
        declared = DECLARATIONS.get(want.type)
        if want.type in NAMEABLE:
            self._report_nameless(amend, want.type)
        elif isinstance(amend.base, Call) and not (declared and declared.is_block):
            message = f"{KINDS[want.type].noun} is no block, so it has no fields to amend"
            advice = "write it whole, or declare it with parameters"
            self._found.error("RL0620", amend.span, message, advice)
        elif (block := block_of(self._evaluator, want.type, amend)) is not None:
            return self._evaluator.made(block)
        return None

    def _report_nameless(self, expr: Expr, kind: str) -> None:
        message = f"what `{expr.span.text.partition('{')[0].strip()}` makes has no name"
        written = " ".join(expr.span.text.split())
        advice = f"declare it, and write its name here: `{kind} name = {written}`"
        self._found.error("RL0622", expr.span, message, advice)

    def block(self, decl: ValueDecl) -> BlockDecl | None:
        """The block that a declaration stands for; None after a report."""
        return made_block(self._evaluator, decl)

    def alone(self, decl: AnyDecl) -> AnyDecl:
        """The declaration with its defaults put in; what has none is not known."""
        return self._filled(decl, {})

    @contextmanager
    def labelled(self, decl: BlockDecl | ValueDecl, call: Call) -> Iterator[None]:
        """Say of what is found in the copy of a declaration where it is used, and of what is wrong
        with an argument there what it was given to."""
        before = len(self._found)
        yield
        label = Label(call.func.span, f"in this use of `{decl.name.id}`")
        _explain(self._found, before, label, decl.span, again=True)
        _explain(self._found, before, Label(decl.name.span, "declared here"), call.span)

    def _copied(self, call: Call) -> BlockDecl | ValueDecl | None:
        assert isinstance(call.func, Name)
        found = self._found
        decl = self._evaluator.scope.templates[call.func.id]
        name, label = decl.name.id, Label(decl.name.span, "declared here")
        self._evaluator.scope.used.add(name)
        if len(self._made) >= MAX_COPIES:
            if len(self._made) == MAX_COPIES:  # said once
                message = f"declarations with parameters are used more than {MAX_COPIES:,} times"
                advice = "each use is a copy; is one used twice in one that is used twice?"
                found.error("RL0628", call.func.span, message, advice, label)
            return None
        places = {parameter.name.id: parameter.name.span for parameter in decl.parameters or ()}
        given: dict[str, Expr] = {}

        def argument(expr: Expr, want: Param) -> Value | None:
            before = len(found)
            value = self._evaluator.value(expr, want)
            _explain(found, before, Label(places[want.name], "the parameter"), expr.span)
            if value is not None:
                given[want.name] = self._marked(expr, value, f"argument of {name}, ")
            return value

        before = len(found)
        found.note("reference", call.func.span, decl)
        found.note_arguments(decl, call.span, call.args, self.wants(decl))
        owner = Owner(name, f"`{name}()`", "argument", call.func.span)
        bound = bind(call.args, self.wants(decl), owner, argument, found)
        _explain(found, before, label, call.span)
        return self._filled(decl, given) if bound.complete else None

    def wants(self, decl: BlockDecl | ValueDecl) -> tuple[Param, ...]:
        """What the parameters of a declaration take. Those with a default have one that is not
        theirs: it is put in as it is written."""
        name = decl.name.id
        if name not in self._wants:
            self._wants[name] = tuple(self._want(name, each) for each in decl.parameters or ())
        return self._wants[name]

    def _want(self, name: str, parameter: Parameter) -> Param:
        default, doc = parameter.default, f"a parameter of `{name}`"
        want = typed(parameter.name.id, parameter.type, doc, self._evaluator.scalars, self._found)
        can_be_none = isinstance(default, Name) and default.id == "none"
        return evolve(want, default=REQUIRED if default is None else None, optional=can_be_none)

    def _marked(self, expr: Expr, value: Value | None, how: str) -> Expr:
        return marked(_converted(expr, value), how, self._evaluator.scope.templates)

    def _filled(self, decl: AnyDecl, given: Mapping[str, Expr]) -> AnyDecl:
        """The declaration without its parameters: what is not given has its default, which may name
        parameters before it."""
        holes: dict[str, Expr] = {}
        for name, default in self._defaults_of(decl).items():
            holes[name] = given.get(name) or filled(default, holes)
        return evolve(filled(decl, holes), parameters=None)

    def _defaults_of(self, decl: BlockDecl | ValueDecl) -> Mapping[str, Expr]:
        """What stands for each parameter that is not given: its default, if that is right."""
        if decl.name.id not in self._defaults:
            defaults: dict[str, Expr] = {}
            for parameter, want in zip(decl.parameters or (), self.wants(decl), strict=True):
                default = parameter.default
                hole: Expr = UnknownValue(parameter.name.span, want)
                if default is not None:
                    value = self._evaluator.value(filled(default, defaults), want)
                    how = f"default of {decl.name.id}, "
                    needs = any(node.id in defaults for node in names_in(default))
                    if value is not None or needs:
                        hole = self._marked(default, value, how)
                defaults[want.name] = hole
            self._defaults[decl.name.id] = defaults
        return self._defaults[decl.name.id]


def _converted(expr: Expr, value: Value | None) -> Expr:
    """The expression, a number or word as its parameter takes it: it may be put where anything
    plain can stand."""
    if value is None:
        return expr
    if value.type in NUMERIC and isinstance(expr, Number | Negative) and value.data is not None:
        return Number(expr.span, value.data)
    if value.type == WORD and isinstance(expr, String):
        return Name(expr.span, value.data)
    return expr


def _explain(
    found: Diagnostics, since: int, label: Label, within: Span, again: bool = False
) -> None:
    """Add a label to what was found in a part of a source, if it has none yet, or ``again``."""
    for index in range(since, len(found)):
        item = found[index]
        span = item.span
        if span is None or span.source is not within.source or span == label.span:
            continue
        inside = within.start <= span.start and span.end <= within.end
        if inside and (again or not item.labels) and label not in item.labels:
            found[index] = evolve(item, labels=(*item.labels, label))
