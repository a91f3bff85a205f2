"""From an expression of the syntax tree to the nodes of a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.program import ExpressionError, Kind
from rlc.algo.expressions.vocabulary import INPUTS, OPERATIONS, SHARE, Input, Operation
from rlc.catalog.records import Param
from rlc.check.scalars import NUMBERS, Scalars, describe
from rlc.check.scope import Scope
from rlc.check.suggest import closest, known_values, rename
from rlc.check.values import Unknown, report_unfit
from rlc.lang.ast import (
    COMPARISONS,
    Attribute,
    Binary,
    Call,
    Expr,
    Name,
    Negative,
    Number,
    Quantity,
)
from rlc.lang.diagnostics import Diagnostics, Fix, Label, replace
from rlc.lang.source import Span

FUNCTIONS = tuple(name for name in OPERATIONS if name.isidentifier() and name != "neg")
_OPERATORS = (*"+-*/", *COMPARISONS)
_PLAIN = Param("expression", "float", "a number of an expression")
_EXPRESSION = Param("expression", "expression", "a part of an expression")


class Evaluator(Protocol):
    """What lowering asks of the evaluator of a recipe."""

    scope: Scope
    found: Diagnostics
    scalars: Scalars


class Lowering:
    """Makes the nodes of one program, and reports what cannot be one.

    ``components`` can be read like inputs. ``parts`` has the node of each named part, None after a
    report; ``uses`` the parts that each expression names, with those of ``defining``.
    """

    def __init__(self, evaluator: Evaluator, kind: Kind, components: Collection[str] = ()) -> None:
        self.evaluator, self.found, self.kind = evaluator, evaluator.found, kind
        self.builder = Builder(kind, components)
        self.parts: dict[str, int | None] = {}
        self.later: dict[str, Span] = {}  # the parts that are not defined yet
        self.defining = ""
        self.uses: dict[str, set[str]] = {}
        self._spans: dict[int, Span] = {}

    def span_of(self, position: int, otherwise: Span) -> Span:
        """The text that a node of the program that was made last was first written as."""
        for node, at in self.builder.positions.items():
            if at == position and node in self._spans:
                return self._spans[node]
        return otherwise

    def node(self, expr: Expr) -> int | None:
        """Return the node of an expression, or None after a report."""
        before = self.builder.size
        made = self._node(expr)
        for node in range(before, self.builder.size):
            self._spans.setdefault(node, expr.span)
        return made

    def _node(self, expr: Expr) -> int | None:
        match expr:
            case Number() | Quantity() | Attribute():
                return self._plain(expr)
            case Name():
                return self._name(expr)
            case Negative():
                return self._apply("neg", expr.span, [expr.operand], expr.span)
            case Binary(op=op) if op in _OPERATORS:
                return self._apply(op, expr.span, [expr.left, expr.right], expr.span)
            case Call(func=Name()):
                return self._call(expr)
            case Unknown():
                self.found.note("hole", expr.span, want=_EXPRESSION)
                report_unfit(expr, _PLAIN, self.found)
                return None
        message = f"{describe(expr)} has no place in an expression"
        known = ", ".join(f"`{name}`" for name in FUNCTIONS)
        advice = f"an expression has numbers, names, `+ - * /`, comparisons and {known}"
        self.found.error("RL0654", expr.span, message, advice)
        return None

    def _plain(self, expr: Expr) -> int | None:
        """A number: written as one, a param, or a field of a model."""
        if isinstance(expr, Attribute) and isinstance(expr.value, Name):
            decl = self.evaluator.scope.decls.get(expr.value.id)
            if decl is not None and decl.kind.id == "loss":
                message = f"`{decl.name.id}` is another loss: its parts cannot be read here"
                advice = "write the part here too; numbers that both use can be a `param`"
                label = Label(decl.name.span, "declared here")
                self.found.error("RL0654", expr.span, message, advice, label)
                return None
        value = self.evaluator.scalars.plain(expr, _PLAIN)
        if value is None:
            return None
        if value.type not in NUMBERS:
            message = f"an expression is made of numbers, and `{expr.span.text}` is none"
            labels = [Label(value.span, "its value")] if value.span != expr.span else []
            self.found.error("RL0654", expr.span, message, None, *labels)
            return None
        return self.builder.number(value.data)

    def _name(self, name: Name) -> int | None:
        if name.id in self.parts:
            self.found.note("local", name.span)
            self.uses.setdefault(self.defining, set()).add(name.id)
            return self.parts[name.id]
        if name.id in self.builder.names:
            self.found.note("input", name.span, INPUTS[self.kind].get(name.id))
            return self.builder.input(name.id)
        if name.id in self.later:
            own = name.id == self.defining
            message = f"`{name.id}` is {'defined by itself' if own else 'defined further down'}"
            advice = "a part may only use those above it"
            labels = [] if own else [Label(self.later[name.id], "defined here")]
            self.found.error("RL0646", name.span, message, advice, *labels)
            return None
        decl = self.evaluator.scope.decls.get(name.id)
        if decl is not None and decl.kind.id == "param":
            return self._plain(name)
        if name.id in self.evaluator.scope.unread:
            return None
        if name.id in FUNCTIONS:
            message = f"`{name.id}` is a function and needs its arguments"
            advice = f"write `{OPERATIONS[name.id].usage}`"
            self.found.error("RL0642", name.span, message, advice)
            return None
        params = self.evaluator.scope.of_kind("param")
        known = [*self.parts, *self.builder.names, *params]
        message = (
            f"there is no `{name.id}` in {'a' if self.kind == 'reward' else 'the'} {self.kind}"
        )
        self.evaluator.scope.used.update(closest(name.id, params))
        advice, fix = _suggested(name.span, name.id, known, INPUTS[self.kind])
        self.found.error("RL0640", name.span, message, advice, fix=fix)
        return None

    def _call(self, call: Call) -> int | None:
        assert isinstance(call.func, Name)
        name, span = call.func.id, call.func.span
        if name not in FUNCTIONS:
            if name in self.builder.names or name in self.parts:
                message = f"`{name}` is a value and takes no arguments"
                advice, fix = f"write `{name}`", None
            else:
                message = f"there is no function `{name}`"
                advice, fix = _suggested(span, name, FUNCTIONS, OPERATIONS)
            self.found.error("RL0641", span, message, advice, fix=fix)
            return None
        self.found.note("function", span, OPERATIONS[name])
        self.found.note_arguments(OPERATIONS[name], call.span, call.args, ())
        for argument in call.args:
            if argument.name is not None:
                message = f"the arguments of `{name}` have no names"
                advice = f"write `{OPERATIONS[name].usage}`"
                self.found.error("RL0642", argument.name.span, message, advice)
                return None
        return self._apply(name, call.span, [argument.value for argument in call.args], span)

    def _apply(self, op: str, span: Span, args: list[Expr], named: Span) -> int | None:
        operation = OPERATIONS[op]
        wanted = len(operation.params)
        if len(args) < wanted or (len(args) > wanted and not operation.variadic):
            least = "at least " if operation.variadic else ""
            takes = f"{least}{wanted} argument{'s' * (wanted != 1)}"
            message = f"`{op}` takes {takes}, found {len(args)}"
            self.found.error("RL0642", named, message, f"write `{operation.usage}`")
            return None
        nodes = [self.node(arg) for arg in args]
        known = [node for node in nodes if node is not None]
        if len(known) < len(nodes):
            return None
        try:
            return self.builder.apply(op, *known)
        except ExpressionError as error:
            if error.argument is None:
                self.found.error("RL0656", span, str(error), "name parts of it, or take some out")
            else:
                place = args[error.argument].span
                of_batch = operation.params[min(error.argument, wanted - 1)] == SHARE
                self.found.error(
                    "RL0659" if of_batch else "RL0643",
                    place,
                    str(error),
                    "0.0002 is one token in 5,000" if of_batch else error.hint,
                )
            return None


def _suggested(
    span: Span,
    word: str,
    known: Sequence[str],
    table: Mapping[str, Input] | Mapping[str, Operation],
) -> tuple[str, Fix | None]:
    """What an unknown word was likely meant for, and the fix: what is called so elsewhere, or the
    nearest of the known names."""
    for name, entry in table.items():
        if word in entry.aliases.split() and name in known:
            advice = f"it is called `{name}` here"
            return advice, replace(span, name, f"write `{name}`")
    return known_values(known, word), rename(span, word, known)


def taken(kind: Kind, name: str) -> str | None:
    """What a name means in expressions of a kind already; None if nothing."""
    if name in INPUTS[kind]:
        return INPUTS[kind][name].doc
    return OPERATIONS[name].doc if name in FUNCTIONS else None
