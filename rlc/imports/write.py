"""Write the text of a recipe: literals, comments, blocks, and the canonical layout."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from rlc.imports.errors import InputError, shown
from rlc.lang import Source, format_text
from rlc.lang.syntax import parse

WIDTH = 100
LONGEST_TRAILING = 58  # a longer comment stands above its field
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LONE_INTERNAL = 5  # digits from which a number is written with separators


@frozen
class RecipeLine:
    """``name = value``, with a comment."""

    name: str
    value: str
    comment: str = ""


def recipe_text(header: str, parts: Iterable[str]) -> str:
    """Return a recipe in its canonical layout; ``header`` is the text of its first comment."""
    text = "\n".join([comment(header), "", *parts])
    source = Source("<import>", text)
    recipe, found = parse(source)
    assert not found.has_errors, found
    return format_text(source, recipe)


def block(kind: str, name: str, lines: Iterable[RecipeLine], above: Sequence[str] = ()) -> str:
    """Write ``kind name { … }`` with comments, to be laid out by the formatter."""
    body = []
    for line in lines:
        field = f"{line.name} = {line.value}"
        beside = len(field) + len(line.comment) < WIDTH - 14
        if line.comment and len(line.comment) <= LONGEST_TRAILING and beside:
            field = f"{field}  # {line.comment}"
        elif line.comment:
            body.append(comment(line.comment, indent=2))
        body.append(field)
    return "\n".join([*(comment(text) for text in above), f"{kind} {name} {{", *body, "}\n"])


def declaration(kind: str, name: str, value: str, above: Sequence[str] = ()) -> str:
    """Write ``kind name = value``."""
    return "\n".join([*(comment(text) for text in above), f"{kind} {name} = {value}\n"])


def call(name: str, *arguments: str, **named: Any) -> str:
    """Write ``name(arguments, key = value)``; a named argument of None is left out."""
    given = [f"{key} = {literal(value)}" for key, value in named.items() if value is not None]
    return f"{name}({', '.join([*arguments, *given])})"


def pipeline(steps: Sequence[str]) -> str:
    return " |> ".join(steps)


@frozen
class Word:
    """A word of the language, or an expression already written: not a string."""

    text: str


def literal(value: Any) -> str:
    """Write a value. Raise InputError if no recipe can hold it."""
    if isinstance(value, Word):
        return value.text
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, dict):
        for name in value:
            if not _NAME.fullmatch(name):
                message = f'"{shown(name)}" cannot be the name of an argument'
                raise InputError(message, "correct it")
        fields = [f"{name} = {literal(item)}" for name, item in value.items()]
        return f"{{ {' '.join(fields)} }}"
    raise InputError(f"a recipe cannot hold {shown(value)}", "take it out")


def choice(value: str, choices: Iterable[str]) -> str:
    """Write one of the ``choices`` as a word, and anything else as a string."""
    return value if value in choices else string(value)


def number(value: int | float) -> str:
    """Write a number: ``32_768``, ``4e-5``, ``0.9``."""
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        digits = str(abs(int(value)))
        grouped = f"{int(digits):_}" if len(digits) >= _LONE_INTERNAL else digits
        text = grouped if isinstance(value, int) else f"{grouped}.0"
        return f"-{text}" if value < 0 else text
    mantissa, exponent, power = repr(float(value)).partition("e")
    return f"{mantissa}e{int(power)}" if exponent else mantissa


def string(value: str) -> str:
    """Write a string with its escapes. Raise InputError if no recipe can hold a character."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    if not escaped.isprintable():
        message = f'"{shown(value)}" holds a character that a recipe cannot'
        raise InputError(message, "write it without control characters")
    return f'"{escaped}"'


def comment(text: str, indent: int = 0) -> str:
    """Wrap a text as comment lines; a line break in it stays one."""
    width = WIDTH - indent - 2
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = "  " * paragraph.startswith("  ")
        lines += textwrap.wrap(
            paragraph,
            width,
            subsequent_indent=rest and "    ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(f"# {line}".rstrip() for line in lines)
