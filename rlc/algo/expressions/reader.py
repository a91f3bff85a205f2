"""Syntax trees to programs: reads the expressions of a recipe and of formulas that come with rlc.

:class:`ExpressionReader` knows the names of one kind of expression. What else a recipe may name,
and how a mistake is reported, its subclass in :mod:`rlc.check.expressions` adds; here a mistake is
raised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.program import ExpressionError, Kind
from rlc.algo.expressions.vocabulary import (
    COMPONENTS,
    LABELS,
    OPERATIONS,
    PART,
    SCOPES,
    TOKENS,
    TURNS,
    Operation,
    functions_of,
    task_scope,
)
from rlc.lang import (
    COMPARISONS,
    Argument,
    Attribute,
    Binary,
    Bool,
    Call,
    Expr,
    Field,
    Fix,
    Label,
    Name,
    Negative,
    Number,
    Quantity,
    Span,
    String,
)

OPERATORS = (*"+-*/", *COMPARISONS)
OTHERS, TASK, OVER = "others", "task", "over"


class ExpressionReader:
    """Makes the nodes of one program. ``components`` can be read like inputs; ``given`` has the
    values of parameters: numbers, words and truth values. ``parts`` has the node of each named
    part, None after a report."""

    def __init__(
        self, kind: Kind, components: Collection[str] = (), given: Mapping[str, Any] | None = None
    ) -> None:
        self.kind, self.builder, self.given = kind, Builder(kind, components), dict(given or {})
        self.functions = functions_of(kind)
        self.parts: dict[str, int | None] = {}
        self._spans: dict[int, Span] = {}

    def span_of(self, position: int, otherwise: Span) -> Span:
        """Return the first text of a node in the last program."""
        nodes = (node for node, at in self.builder.positions.items() if at == position)
        return next((self._spans[node] for node in nodes if node in self._spans), otherwise)

    def define(self, field: Field) -> int | None:
        """Return the node of a named part."""
        name = field.name.id
        node = self.parts[name] = self.node(field.value)
        if node is not None:
            self.builder.name(node, name)
        return node

    def node(self, expr: Expr) -> int | None:
        """Return the node of an expression, or None after a report."""
        before = self.builder.size
        made = self._node(expr)
        for node in range(before, self.builder.size):
            self._spans.setdefault(node, expr.span)
        return made

    def _node(self, expr: Expr) -> int | None:
        if (holds := self.static(expr)) is not None:
            return self.builder.apply("==", self.builder.number(1), self.builder.number(holds))
        match expr:
            case Name():
                return self.named(expr)
            case Negative():
                return self.applied("neg", expr.span, [expr.operand], expr.span)
            case Binary(op="==" | "!=" as op, left=Name(id=label), right=String(value=value)) if (
                self.kind == "advantage" and label in LABELS
            ):
                return self._compared(label, value, op)
            case Attribute(value=Name(id="parts"), attr=Name(id=part)) if self.kind == "advantage":
                return self.builder.input(f"{PART}{part}")
            case Binary(op=op) if op in OPERATORS:
                return self.applied(op, expr.span, [expr.left, expr.right], expr.span)
            case Call(func=Name()):
                return self._call(expr)
        return self.plain(expr)

    def plain(self, expr: Expr) -> int | None:
        """Return the node of what is neither a name nor an operation: a number."""
        if isinstance(expr, Number | Quantity):
            share = isinstance(expr, Quantity) and expr.unit == "%"
            return self.builder.number(expr.value / 100 if share else expr.value)
        return self.wrong("RL0654", expr.span, f"{expr.span.text} has no place in an expression")

    def named(self, name: Name) -> int | None:
        if name.id in self.parts:
            return self.parts[name.id]
        if name.id in self.given:
            return self.builder.number(self.given[name.id])
        if name.id in self.builder.names:
            return self.builder.input(name.id)
        return self.wrong("RL0640", name.span, f"there is no `{name.id}`")

    def wrong(
        self,
        code: str,  # noqa: ARG002
        span: Span,  # noqa: ARG002
        message: str,
        advice: str | None = None,
        *labels: Label,  # noqa: ARG002
        fix: Fix | None = None,  # noqa: ARG002
    ) -> int | None:
        """Report a mistake and return None; here, raise it."""
        raise ExpressionError(message, "", hint=advice)

    def noted(self, what: str, span: Span, of: Any = None, **more: Any) -> None:
        """Note what a span is, for who asks later."""

    def static(self, expr: Expr) -> bool | None:
        """Return whether a condition on words holds, which is known before anything is computed:
        ``scale == std``; None for another."""
        if isinstance(expr, Bool):
            return expr.value
        if isinstance(expr, Name):
            value = self.given.get(expr.id)
            return value if isinstance(value, bool) else None
        if isinstance(expr, Binary) and expr.op in ("==", "!="):
            sides = [self.word(side) for side in (expr.left, expr.right)]
            return None if None in sides else (sides[0] == sides[1]) == (expr.op == "==")
        return None

    def word(self, expr: Expr) -> str | None:
        """Return the word that a name is or stands for; None if it is a value."""
        if not isinstance(expr, Name) or expr.id in self.parts or expr.id in self.builder.names:
            return None
        value = self.given.get(expr.id, expr.id if self.is_word(expr) else None)
        return value if isinstance(value, str) else None

    def is_word(self, name: Name) -> bool:
        """Return whether a name that stands for nothing is meant as it is written."""
        return name.id not in LABELS

    def _compared(self, label: str, value: str, op: str) -> int:
        flag = self.builder.input(f'{label} == "{value}"')
        return self.builder.apply("!=" if op == "==" else "==", flag, self.builder.number(0))

    def _call(self, call: Call) -> int | None:
        assert isinstance(call.func, Name)
        name = call.func.id
        if name == "where" and len(call.args) == 3:
            holds = self.static(call.args[0].value)
            if holds is not None:
                return self.node(call.args[1 if holds else 2].value)
        operation = self._meant(name, call.args)
        if operation is None:
            return self.no_function(call.func)
        self.noted("function", call.func.span, operation)
        self.noted("arguments", call.span, operation, args=call.args)
        given = {one.name.id: one for one in call.args if one.name}
        over = self._over(operation, call, given.pop(OVER, None))
        if over == "":
            return None
        args: list[Expr | float] = [one.value for one in call.args if one.name is None]
        wanted = [param for param in operation.params if param not in operation.named]
        for param, default in operation.named.items() if len(args) >= len(wanted) else ():
            stated = given.pop(param, None)
            otherwise = args[0] if default is None else default
            args.append(stated.value if stated else otherwise)
        if given:
            other = next(iter(given.values()))
            assert other.name is not None
            message = f"`{name}` has no argument called `{other.name.id}`"
            if not operation.named:
                message = f"the arguments of `{name}` have no names"
            advice = ", ".join([f"`{each}`" for each in ("over", *operation.named)])
            known = f"write `{operation.usage}`" + (
                f"; more are {advice}" if operation.named else ""
            )
            return self.wrong("RL0642", other.name.span, message, known)
        return self.applied(operation.name, call.span, args, call.func.span, over)

    def _meant(self, name: str, args: Sequence[Argument]) -> Operation | None:
        """Return the operation of a call: a statistic if it is of one value, or says ``over``."""
        statistic = OPERATIONS.get(f"{name} over")
        if statistic is None or self.kind not in statistic.kinds:
            return self.functions.get(name)
        several = sum(one.name is None for one in args) > 1
        named = any(one.name is not None and one.name.id == OVER for one in args)
        return self.functions[name] if several and not named else statistic

    def _over(self, operation: Operation, call: Call, given: Argument | None) -> str | None:
        """Return what a statistic is taken over, None for what is none; "" after a report."""
        if not operation.over:
            if given is None or given.name is None:
                return None
            message = f"`{operation.word}` is not taken over anything"
            self.wrong("RL0642", given.name.span, message, f"write `{operation.usage}`")
            return ""
        scopes = operation.taken_over(self.kind)
        if given is None:
            if TURNS in scopes:
                return TURNS
            advice = f"write `{operation.usage}`"
            self.wrong("RL0642", call.func.span, f"over what is this `{operation.word}`?", advice)
            return ""
        over = self.scope(given.value)
        if over is None:
            named = [scope for scope in scopes if scope in SCOPES]
            known = ", ".join(f"`{scope}`" for scope in (*named, OTHERS, f"{OTHERS}(scope)"))
            message = f"`{given.value.span.text}` is no scope"
            self.wrong("RL0643", given.value.span, message, f"scopes are {known}")
            return ""
        return over

    def scope(self, expr: Expr) -> str | None:
        """Return a scope: by its name, that of a parameter, the others of one, ``others(group)``,
        or the task that one compares within, ``task(batch_role)``; None if it is none."""
        if isinstance(expr, Call) and isinstance(expr.func, Name) and len(expr.args) == 1:
            inner, by = self.scope(expr.args[0].value), expr.func.id
            if inner in SCOPES and by == TASK:
                return task_scope(inner)
            return f"{OTHERS}({inner})" if inner in SCOPES and by == OTHERS else None
        word = self.given.get(expr.id, expr.id) if isinstance(expr, Name) else None
        if word == OTHERS:
            return f"{OTHERS}({SCOPES[0]})"
        return word if word in (*SCOPES, TOKENS, TURNS, COMPONENTS) else None

    def no_function(self, name: Name) -> int | None:
        return self.wrong("RL0641", name.span, f"there is no function `{name.id}`")

    def applied(
        self,
        op: str,
        span: Span,
        args: Sequence[Expr | float],
        named: Span,
        over: str | None = None,
    ) -> int | None:
        """Return the node of an operation on expressions. ``named`` is the place of its name."""
        operation = OPERATIONS[op]
        wanted = len(operation.params) - len(operation.named)
        found = len(args) - (len(operation.named) if len(args) >= len(operation.params) else 0)
        if found < wanted or (found > wanted and not operation.variadic):
            least = "at least " if operation.variadic else ""
            takes = f"{least}{wanted} argument{'s' * (wanted != 1)}"
            message = f"`{operation.word}` takes {takes}, found {found}"
            return self.wrong("RL0642", named, message, f"write `{operation.usage}`")
        nodes = [
            self.builder.number(arg) if isinstance(arg, int | float) else self.node(arg)
            for arg in args
        ]
        known = [node for node in nodes if node is not None]
        if len(known) < len(nodes):
            return None
        try:
            return self.builder.apply(op, *known, over=over)
        except ExpressionError as error:
            return self.misfit(error, operation, span, args)

    def misfit(
        self,
        error: ExpressionError,
        operation: Operation,  # noqa: ARG002
        span: Span,  # noqa: ARG002
        args: Sequence[Expr | float],  # noqa: ARG002
    ) -> int | None:
        """Report arguments that do not fit."""
        raise error
