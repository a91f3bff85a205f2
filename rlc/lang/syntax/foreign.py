"""Blocks as other languages write them: ``train main:``, ``[train.main]``, ``train "main" {``.

Each is one mistake, reported at its head and then read as the block in braces that was meant.
Parameters with a type before their name, ``int size``, are recognised by the names of these types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlc.lang.diagnostics import Diagnostics, Fix
from rlc.lang.source import Span
from rlc.lang.syntax.lalr import Token
from rlc.lang.syntax.layout import JOINERS, Layout

# The types of other languages -> how a recipe writes them.
FOREIGN_TYPES = {"double": "float", "str": "string", "boolean": "bool", "long": "int"}
FOREIGN_TYPES |= {name: name for name in ("int", "float", "string", "bool")}

REST_OF_LINE = re.compile(r"[ \t\r]*(?:#[^\r\n]*)?(?=\r?\n|$)")
_QUOTED_NAME = re.compile(r'"[A-Za-z_]\w*"')


def with_braces(layout: Layout) -> tuple[Sequence[Token], Diagnostics]:
    """Return the tokens with such blocks in braces, and a diagnostic for each."""
    tokens, out, found = layout.tokens, list[Token](), Diagnostics()
    index = 0
    while index < len(tokens):
        quoted = _quoted_name(layout, index)
        head = _head(layout, index)
        stop = _end_of_block(layout, index, index + head[1]) if head else index
        if quoted is not None:
            _report_quoted(layout, index, found)
            out += [tokens[index], quoted]
            index += 2
        elif head and stop > index + head[1]:
            (kind, name), length, _ = head
            _report_block(layout, index, head, stop, found)
            brace, end = tokens[index + length - 1].end, tokens[stop - 1].end
            out += [kind, name, Token("LBRACE", brace, brace), *tokens[index + length : stop]]
            out.append(Token("RBRACE", end, end))
            index = stop
        else:
            out.append(tokens[index])
            index += 1
    return (out, found) if found else (tokens, found)


_Head = tuple[tuple[Token, Token], int, str]  # kind and name, number of tokens, `train main {`


def _head(layout: Layout, index: int) -> _Head | None:
    """Return the head of a block alone on its line; a missing name is the kind."""
    tokens, kinds = layout.tokens, layout.kinds(index, 5)
    if not layout.is_first(tokens[index]) or (index and tokens[index - 1].kind in JOINERS):
        return None
    forms = {
        ("NAME", "NAME", "COLON"): (0, 1),
        ("NAME", "COLON"): (0, 0),
        ("LSQB", "NAME", "DOT", "NAME", "RSQB"): (1, 3),
        ("LSQB", "NAME", "NAME", "RSQB"): (1, 2),
        ("LSQB", "NAME", "RSQB"): (1, 1),
    }
    for form, (first, second) in forms.items():
        last = index + len(form) - 1
        if tuple(kinds[: len(form)]) == form and last + 1 < len(tokens):
            kind, name = tokens[index + first], tokens[index + second]
            is_alone = layout.line(tokens[last + 1]) > layout.line(tokens[last])
            if is_alone and layout.is_field(last + 1) and layout.line(kind) == layout.line(name):
                named = layout.span(name).text if second != first else "name"
                return (kind, name), len(form), f"{layout.span(kind).text} {named} {{"
    return None


def _end_of_block(layout: Layout, head: int, first: int) -> int:
    """Return the end of the fields from ``tokens[first]`` on; ``first`` if they are no block's."""
    tokens, column = layout.tokens, layout.column(layout.tokens[head])
    is_deeper = layout.column(tokens[first]) > column
    fields, stop = 0, first
    while stop < len(tokens):
        starts = layout.is_first(tokens[stop])
        if stop > first and starts and is_deeper and layout.column(tokens[stop]) <= column:
            break
        if layout.is_head(stop) or (starts and _head(layout, stop)):
            break
        fields += starts and layout.is_field(stop)
        stop += 1
    # `param rate:` with `float = 1` on the next line is a declaration with its type.
    return stop if fields > 1 else first


def _report_block(layout: Layout, index: int, head: _Head, stop: int, found: Diagnostics) -> None:
    (kind, name), length, written = head
    source, tokens = layout.source, layout.tokens
    span = Span(source, tokens[index].start, tokens[index + length - 1].end)
    last = tokens[stop - 1].end
    rest = REST_OF_LINE.match(source.text, last)
    end = Span(source, rest.end(), rest.end()) if rest else Span(source, last, last)
    closing = f"\n{' ' * (layout.indent(tokens[index]) - 1)}}}"
    fix = Fix(f"write `{written} … }}`", ((span, written), (end, closing)), safe=kind != name)
    message = f"`{span.text}` does not start a block"
    advice = f"the fields of a block stand in braces: `{written} … }}`"
    found.error("RL0018", span, message, advice, fix=fix)


def _quoted_name(layout: Layout, index: int) -> Token | None:
    """Return the name in ``train "main" {``, without its quotes."""
    if layout.kinds(index, 3) != ["NAME", "STRING", "LBRACE"] or not layout.is_first(
        layout.tokens[index]
    ):
        return None
    string = layout.tokens[index + 1]
    is_name = _QUOTED_NAME.fullmatch(layout.span(string).text)
    return Token("NAME", string.start + 1, string.end - 1) if is_name else None


def _report_quoted(layout: Layout, index: int, found: Diagnostics) -> None:
    span = layout.span(layout.tokens[index + 1])
    name = span.text.strip('"')
    fix = Fix(f"write `{name}`", ((span, name),))
    message = "the name of a block stands without quotes"
    found.error("RL0018", span, message, f"write `{name}`", fix=fix)
