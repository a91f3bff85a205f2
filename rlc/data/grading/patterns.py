"""Short texts that a regular expression finds, to try it on the answers of rows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

_MARK = "\0"  # stands for the answer
_OF_CATEGORY = {"DIGIT": "1", "SPACE": " ", "NOT_WORD": " "}


def found_with(pattern: str, answers: Iterable[str]) -> list[str]:
    """Return short texts in which a pattern has each answer as its first group, or as all of it if
    there are no groups. None are known for a pattern that looks around, or back at its groups."""
    try:
        tree = importlib.import_module("re._parser").parse(pattern)
        groups = re.compile(pattern).groups
        inner: list[str] = []
        text = _text(tree, inner) if groups else _MARK
        inner = inner or [_text(tree, [])]
    except (ImportError, _UnknownTextError):
        return []
    if text.count(_MARK) != 1 or not re.search(pattern, text.replace(_MARK, inner[0])):
        return []
    return [text.replace(_MARK, answer) for answer in answers]


class _UnknownTextError(ValueError):
    """A part of a pattern for which no text can be made up."""


def _text(tree: Any, inner: list[str]) -> str:
    """Return a text for a part of a pattern, with a mark as its first group, whose own text is
    added to ``inner``."""
    made = ""
    for kind, given in tree:
        match str(kind):
            case "LITERAL":
                made += chr(given)
            case "ANY" | "NOT_LITERAL":
                made += "x"
            case "IN":
                made += _character(*given[0])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, _, part = given
                text = _text(part, inner)
                made += text * max(least, text.count(_MARK))
            case "SUBPATTERN":
                text = _text(given[3], inner)
                if given[0] == 1:
                    inner.append(text)
                made += _MARK if given[0] == 1 else text
            case "ATOMIC_GROUP":
                made += _text(given, inner)
            case "BRANCH":
                texts = [_text(part, inner) for part in given[1]]
                made += next((text for text in texts if _MARK in text), texts[0])
            case "AT":
                pass
            case _:
                raise _UnknownTextError(str(kind))
    return made


def _character(kind: Any, given: Any) -> str:
    """Return a character of a class that begins with this member; of others than these, `x`."""
    match str(kind):
        case "LITERAL":
            return chr(given)
        case "RANGE":
            return chr(given[0])
    return _OF_CATEGORY.get(str(given).removeprefix("CATEGORY_"), "x")
