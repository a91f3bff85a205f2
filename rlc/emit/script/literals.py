"""Values and calls as formatters write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import field, frozen

WIDTH = 100


def _listed(given: Iterable[Expression]) -> tuple[Expression, ...]:
    return tuple(given)


@frozen
class CallText:
    """``start(args)``, or with other brackets a collection."""

    start: str
    args: tuple[Expression, ...] = field(converter=_listed)
    brackets: str = "()"

    def __str__(self) -> str:
        return f"{self.start}{self.brackets[0]}{', '.join(map(str, self.args))}{self.brackets[1]}"

    def with_start(self, before: str) -> CallText:
        return CallText(before + self.start, self.args, self.brackets)


Expression = str | CallText


def named(before: str, expression: Expression) -> Expression:
    """Return an expression with something before it: ``name=``, ``lambda: ``."""
    if isinstance(expression, str):
        return before + expression
    return expression.with_start(before)


def given(values: Mapping[str, Any]) -> Iterable[Expression]:
    """Yield values as named arguments."""
    return (named(f"{name}=", value(one)) for name, one in values.items())


def written(expression: Expression, indent: int = 0, after: int = 0) -> str:
    """Write an expression that starts in a column, with so many characters behind it: on one line,
    or, where that is too long, with all arguments of a call on the next, or one a line."""
    line, inner = str(expression), indent + 4
    if isinstance(expression, str) or indent + len(line) + after <= WIDTH:
        return line
    joined = ", ".join(map(str, expression.args))
    if expression.brackets == "()" and inner + len(joined) <= WIDTH:
        inside = f"{' ' * inner}{joined}\n"
    else:
        inside = "".join(f"{' ' * inner}{written(one, inner, 1)},\n" for one in expression.args)
    first, last = expression.brackets[0], expression.brackets[1]
    return f"{expression.start}{first}\n{inside}{' ' * indent}{last}"


def value(plain: Any) -> Expression:
    """Return a plain value as an expression."""
    if isinstance(plain, dict):
        return CallText("", [named(f"{literal(k)}: ", value(v)) for k, v in plain.items()], "{}")
    if isinstance(plain, list | tuple):
        return CallText("", map(value, plain), "[]")
    return literal(plain)


def literal(plain: Any) -> str:
    """Write a plain value as Python on one line."""
    if isinstance(plain, dict | list | tuple):
        return str(value(plain))
    if isinstance(plain, str):
        text = json.dumps(plain, ensure_ascii=False)
        single = '"' in plain and "'" not in plain  # the quotes that need fewer escapes
        return "'" + text[1:-1].replace('\\"', '"') + "'" if single else text
    if isinstance(plain, int) and not isinstance(plain, bool) and abs(plain) >= 100_000:
        return f"{plain:_}"
    return repr(plain)
