"""The one canonical layout of a recipe.

Two spaces of indent, one field on each line, `=` aligned within a block, at most one blank line
in a row and one around every block. An expression stays on its line if it fits in 100 columns,
holds no comment and is neither a pipeline of more than two steps nor an amendment of more than two
fields; else it is broken at its outermost level first: before `|>`, before `+` and `-`, after every
argument or item.

Comments stay with the declaration, field, argument, item or step they stand at: on lines of
their own before it, or after it on its line, below each other where the lines before have one too.
One in the middle of something that has no room for it moves to the line before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from rlc.lang import ast
from rlc.lang.source import Source, Span
from rlc.lang.syntax.lalr import Token
from rlc.lang.syntax.lexer import lex
from rlc.lang.syntax.tables import load_tables
from rlc.records import define, frozen

WIDTH = 100
STEP = 2  # columns of one indent
MAX_INLINE_STEPS = 2  # `|>` on one line
MAX_INLINE_FIELDS = 2  # of an amendment on one line
GAP = "  "  # at least, between code and comment
MAX_PADDING = 20  # columns; a comment further from its code no longer reads as its own

_CLOSED = re.compile(r"(?:[\s(,]|#[^\n]*\n)*\)")  # what may follow the last parameter

# How tightly an expression binds; an operand that binds less tightly takes parentheses.
_THEN, _PIPE, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(7)
_LEVELS = {"then": _THEN, "|>": _PIPE, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}
_LEVELS |= dict.fromkeys(ast.COMPARISONS, _COMPARE)
# The level that an operator's operands need at least: pipelines and arithmetic do not mix.
_OPERANDS = {_THEN: _PIPE, _PIPE: _ATOM, _COMPARE: _SUM, _SUM: _PRODUCT, _PRODUCT: _UNARY}


def format_text(source: Source, recipe: ast.Recipe) -> str:
    """Return the text of ``recipe``, parsed without errors from ``source``, as it is formatted."""
    comments = _Comments(source, lex(source, load_tables()).comments)
    lines = _Formatter(comments).recipe(recipe)
    return _align_comments("".join(f"{line}\n" for line in lines))


@define
class _Comments:
    """The comments of a source, consumed in order as the layout reaches them."""

    source: Source
    tokens: list[Token]
    next: int = 0

    def take_trailing(self, offset: int, between: str = " \t,", limit: float = math.inf) -> str:
        """Take the comment on the line of ``offset`` with only ``between`` before it, or ""."""
        if self.next == len(self.tokens):
            return ""
        token = self.tokens[self.next]
        if token.start >= limit or self.source.text[offset : token.start].strip(between):
            return ""
        self.next += 1
        return f"  {self.text(token)}"

    def any_in(self, span: Span) -> bool:
        following = self.tokens[self.next : self.next + 1]
        return any(span.start <= token.start < span.end for token in following)

    def text(self, token: Token) -> str:
        return self.source.text[token.start : token.end].rstrip()

    def has_blank_before(self, offset: int) -> bool:
        text = self.source.text
        newlines = 0
        while offset and text[offset - 1] in " \t\r\f\n":
            offset -= 1
            newlines += text[offset] == "\n"
        return newlines > 1


@frozen
class _Formatter:
    comments: _Comments

    # Declarations and fields: lines, with an empty one where the layout has a blank line.

    def recipe(self, recipe: ast.Recipe) -> list[str]:
        lines: list[str] = []
        before: ast.Decl | None = None
        for decl in recipe.decls:
            apart = before is not None and ast.BlockDecl in (type(before), type(decl))
            lines += self.entry(decl.span, _value_span(decl), 0, partial(self.decl, decl), apart)
            before = decl
        return _without_first_blank(lines + self.own_line(recipe.span.end, 0))

    def decl(self, decl: ast.Decl) -> list[str]:
        head = f"{decl.kind.id} "
        if isinstance(decl, ast.ImportDecl):
            return [f"{head}{decl.path.span.text}"]
        if isinstance(decl, ast.Expectation):
            return self.expr(decl.comparison, head, 0)
        head += decl.name.id
        above: list[str] = []
        if decl.parameters is not None:
            *above, head = self.parameters(head, decl.parameters)
        if isinstance(decl, ast.BlockDecl):
            end = _value_span(decl).end
            closed = _CLOSED.match(self.comments.source.text, end)
            if decl.parameters is not None and closed:
                end = closed.end()
            return [*above, *self.block(f"{head} ", end, decl, 0)]
        if decl.type is not None:
            head += f": {_flat(decl.type)}"
        return [*above, *self.expr(decl.value, f"{head} = ", 0)]

    def parameters(self, head: str, parameters: Sequence[ast.Parameter]) -> list[str]:
        """Return ``name(parameters)`` on one line, or each of them on its own."""
        written = [_parameter(parameter) for parameter in parameters]
        flat = f"{head}({', '.join(written)})"
        if len(flat) + len(" = {") <= WIDTH:
            return [flat]
        return [f"{head}(", *(f"{' ' * STEP}{part}," for part in written), ")"]

    def block(
        self,
        head: str,
        head_end: int,
        node: ast.BlockDecl | ast.RecordExpr | ast.Amend,
        indent: int,
    ) -> list[str]:
        """Return ``head { fields }`` over several lines, or ``head {}``."""
        opening = self.comments.take_trailing(head_end, " \t{")
        width = max((len(field.name.id) for field in node.fields), default=0)
        fields: list[str] = []
        followers = [*(field.name.id for field in node.fields[1:]), ""]
        for field, follower in zip(node.fields, followers, strict=False):
            prefix, inner = f"{field.name.id:<{width}} = ", indent + STEP
            # Without a comma before it, a field called `then` would be the operator.
            comma = "," * (follower in _LEVELS)
            lines = partial(self.expr, field.value, prefix, inner, len(comma))
            fields += self.entry(field.span, field.value.span, inner, lines, comma=comma)
        fields += self.own_line(node.span.end, indent + STEP)
        if not fields and not opening:
            return [f"{head}{{}}"]
        return [f"{head}{{{opening}", *_without_first_blank(fields), f"{' ' * indent}}}"]

    def entry(
        self,
        span: Span,
        inner: Span,
        indent: int,
        lines: Callable[[], list[str]],
        apart: bool = False,
        comma: str = "",
    ) -> list[str]:
        """Return the lines of an item, with the comments before, in and after it."""
        head = self.own_line(span.start, indent)
        item = self.part(inner.start, span.end, indent, lines)
        item[-1] += comma + self.comments.take_trailing(span.end)
        if self.comments.has_blank_before(span.start):
            head.append("")
        elif apart and "" not in head:
            head.insert(0, "")
        return [*head, *item]

    def own_line(self, end: int, indent: int) -> list[str]:
        """Return the comments up to ``end``, each on its own line."""
        lines, comments = [], self.comments
        while comments.next < len(comments.tokens) and comments.tokens[comments.next].start < end:
            token = comments.tokens[comments.next]
            comments.next += 1
            if comments.has_blank_before(token.start):
                lines.append("")
            lines.append(" " * indent + comments.text(token))
        return lines

    # Expressions: the first line starts with a prefix and has no indent, the others have theirs.

    def expr(self, expr: ast.Expr, prefix: str, indent: int, suffix: int = 0) -> list[str]:
        """Return ``prefix`` and the expression, with ``suffix`` columns left on its last line."""
        flat = prefix + _flat(expr)
        inline = _level(expr) != _PIPE or len(_chain(expr)) <= MAX_INLINE_STEPS + 1
        inline &= not isinstance(expr, ast.Amend) or len(expr.fields) <= MAX_INLINE_FIELDS
        fits = indent + len(flat) + suffix <= WIDTH
        if inline and fits and not self.comments.any_in(expr.span):
            return [flat]
        if isinstance(expr, ast.Binary) and expr.op in ("*", "/"):
            left, right = expr.left, expr.right
            start = f"{prefix}{_operand(left, _PRODUCT)} {expr.op} "
            return self.operand(right, _UNARY, start, indent, suffix)
        if isinstance(expr, ast.Binary):
            return self.chain(expr, prefix, indent)
        if isinstance(expr, ast.Negative):
            return self.operand(expr.operand, _UNARY, f"{prefix}-", indent, suffix)
        if isinstance(expr, ast.RecordExpr) and (expr.fields or self.comments.any_in(expr.span)):
            return self.block(prefix, expr.span.start, expr, indent)
        if isinstance(expr, ast.Amend):
            base = f"{prefix}{_flat(expr.base)} "
            return self.block(base, expr.base.span.end, expr, indent)
        if isinstance(expr, ast.ListExpr):
            return self.items(f"{prefix}[", expr.items, "]", expr.span, indent)
        if isinstance(expr, ast.Call):
            return self.items(f"{prefix}{_flat(expr.func)}(", expr.args, ")", expr.span, indent)
        return [flat]

    def operand(
        self, expr: ast.Expr, level: int, prefix: str, indent: int, suffix: int = 0
    ) -> list[str]:
        if _level(expr) >= level:
            return self.expr(expr, prefix, indent, suffix)
        lines = self.expr(expr, f"{prefix}(", indent, suffix + 1)
        return [*lines[:-1], f"{lines[-1]})"]

    def chain(self, expr: ast.Binary, prefix: str, indent: int) -> list[str]:
        """Return operands of one level, each on a line that starts with its operator."""
        level = _OPERANDS[_level(expr)]
        (_, first), *rest = _chain(expr)
        lines = self.operand(first, level, prefix, indent)
        lines[-1] += self.comments.take_trailing(first.span.end, " \t)")
        inner = indent + STEP
        for op, operand in rest:
            is_last = operand is expr.right
            end = (expr if is_last else operand).span.end
            body = partial(self.operand, operand, level, f"{op} ", inner)
            lines += self.part(operand.span.start, end, inner, body)
            if not is_last:  # after the last one, it goes after the comma or bracket of the whole
                lines[-1] += self.comments.take_trailing(end, " \t)")
        return lines

    def items(
        self,
        head: str,
        items: Sequence[ast.Argument | ast.Expr],
        closer: str,
        span: Span,
        indent: int,
    ) -> list[str]:
        """Return arguments or list items, each on its own line with a comma."""
        inner = indent + STEP
        lines = [head]
        for item in items:
            value = item.value if isinstance(item, ast.Argument) else item
            body = partial(self.expr, value, _label(item), inner, 1)
            lines += self.part(value.span.start, item.span.end, inner, body)
            lines[-1] += "," + self.comments.take_trailing(item.span.end, " \t,)", span.end)
        last = [*filter(None, self.own_line(span.end, inner))]
        if len(lines) == 1 and not last:
            return [f"{head}{closer}"]
        return [*lines, *last, f"{' ' * indent}{closer}"]

    def part(self, start: int, end: int, indent: int, lines: Callable[[], list[str]]) -> list[str]:
        """Return an item or a part of an expression on its own lines, after the comments up to its
        ``end`` that have no room in it.

        If others stand in its lines, these stay behind them: they are left for what follows.
        """
        before = self.own_line(start, indent)
        first = self.comments.next
        body = lines()
        if self.comments.next == first:
            before += self.own_line(end, indent)
        body[0] = " " * indent + body[0]
        return [*filter(None, before), *body]


def _without_first_blank(lines: list[str]) -> list[str]:
    return lines[1:] if lines[:1] == [""] else lines


def _value_span(decl: ast.Decl) -> Span:
    """Return the part of a declaration before which no comment has room."""
    match decl:
        case ast.ValueDecl():
            return decl.value.span
        case ast.ImportDecl():
            return decl.path.span
        case ast.Expectation():
            return decl.comparison.span
        case ast.BlockDecl():
            return (decl.parameters or [decl.name])[-1].span


def _parameter(parameter: ast.Parameter) -> str:
    text = parameter.name.id
    if parameter.type is not None:
        text += f": {_flat(parameter.type)}"
    return text if parameter.default is None else f"{text} = {_flat(parameter.default)}"


def _label(item: ast.Argument | ast.Expr) -> str:
    return f"{item.name.id} = " if isinstance(item, ast.Argument) and item.name else ""


def _level(expr: ast.Expr) -> int:
    if isinstance(expr, ast.Binary):
        return _LEVELS[expr.op]
    return _UNARY if isinstance(expr, ast.Negative) else _ATOM


def _chain(expr: ast.Expr) -> list[tuple[str, ast.Expr]]:
    """Return ``[("", a), ("+", b), ("-", c)]`` for ``a + b - c``; any other expression alone."""
    level = _level(expr)
    operands: list[tuple[str, ast.Expr]] = []
    while isinstance(expr, ast.Binary) and _level(expr) == level:
        operands.append((expr.op, expr.right))
        expr = expr.left
        if level == _COMPARE:  # one alone
            break
    return [("", expr), *reversed(operands)]


def _flat(expr: ast.Expr) -> str:
    """Return an expression on one line."""
    match expr:
        case ast.Binary():
            level = _OPERANDS[_level(expr)]
            parts = (f"{op} {_operand(operand, level)}" for op, operand in _chain(expr))
            return " ".join(parts).lstrip()
        case ast.Negative():
            return f"-{_operand(expr.operand, _UNARY)}"
        case ast.Attribute():
            return f"{_flat(expr.value)}.{expr.attr.id}"
        case ast.Call():
            args = (f"{_label(argument)}{_flat(argument.value)}" for argument in expr.args)
            return f"{_flat(expr.func)}({', '.join(args)})"
        case ast.ListExpr():
            return f"[{', '.join(_flat(item) for item in expr.items)}]"
        case ast.RecordExpr():
            fields = (f"{field.name.id} = {_flat(field.value)}" for field in expr.fields)
            return f"{{ {', '.join(fields)} }}" if expr.fields else "{}"
        case ast.Amend():
            return f"{_flat(expr.base)} {_flat(ast.RecordExpr(expr.span, expr.fields))}"
        case _:
            return expr.span.text  # names and literals, as they were written


format_expression = _flat


def _operand(expr: ast.Expr, level: int) -> str:
    return _flat(expr) if _level(expr) >= level else f"({_flat(expr)})"


def _align_comments(text: str) -> str:
    """Put the comments of neighbouring lines of one indent into one column.

    A group stays as it is where it would be too wide, or a comment stand far from its code.
    Aligning twice changes nothing: the code before the comments, which decides, does not change.
    """
    lines, source = text.split("\n"), Source("", text)
    commented: list[tuple[int, str, str]] = []  # index of the line, its code, its comment
    for token in lex(source, load_tables()).comments:
        number, column = source.position(token.start)
        if code := lines[number - 1][: column - 1].rstrip():
            commented.append((number - 1, code, text[token.start : token.end]))

    def block(item: tuple[int, tuple[int, str, str]]) -> tuple[int, int]:
        """Return a key that is the same for consecutive lines of one indent."""
        place, (index, code, _) = item
        return index - place, len(code) - len(code.lstrip())

    for _, items in groupby(enumerate(commented), block):
        group = [line for _, line in items]
        widths = [len(code) for _, code, _ in group]
        column = max(widths) + len(GAP)
        fits = all(column + len(comment) <= WIDTH for _, _, comment in group)
        if fits and max(widths) - min(widths) <= MAX_PADDING:
            for index, code, comment in group:
                lines[index] = f"{code:<{column}}{comment}"
    return "\n".join(lines)
