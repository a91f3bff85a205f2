"""Plain values as other languages write them: ``True``, ``data/x.jsonl``, ``"${name}"``."""

from __future__ import annotations

import re

from rlc.catalog import Param
from rlc.check.scope import Scope
from rlc.lang import Attribute, Binary, Diagnostics, Expr, Name, Number, Span, String, replace

# `${name}` in a string, and a folder that a variable of the environment names.
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_FOLDER = re.compile(r"\$\{[A-Z][A-Z0-9_]*\}(?:/|$)")


def report_word(name: Name, want: Param, found: Diagnostics) -> bool:
    """Report a word that other languages have for a plain value, ``True`` or ``null``, if it is."""
    from rlc.catalog import WORDS  # only needed for a mistake

    meant = WORDS.get(name.id, name.id)
    if meant not in ("true", "false", "none"):
        return False
    if meant == "none" and not want.optional:
        advice = None if want.required else "leave it out for its default"
        message = f"`{want.name}` takes no `{name.id}`"
        found.error("RL0201", name.span, message, advice)
    else:
        message, advice = f"`{name.id}` is written `{meant}` here", f"write `{meant}`"
        found.error("RL0115", name.span, message, advice, fix=replace(name.span, meant, advice))
    return True


def is_unquoted(expr: Expr, scope: Scope) -> bool:
    """Whether it reads as a path or dotted name: one word of names that nobody declares."""
    parts, names = [expr], list[str]()
    while parts:
        match parts.pop():
            case Name() as name:
                names.append(name.id)
            case Attribute() as path:
                parts.append(path.value)
            case Binary(op="/" | "-") as operation:
                parts += operation.left, operation.right
            case Number():
                pass
            case _:
                return False
    is_word = not any(map(str.isspace, expr.span.text))
    return is_word and bool(names) and not any(map(scope.knows, names))


def warn_of_placeholders(text: String, want: Param, scope: Scope, found: Diagnostics) -> None:
    """Warn of ``${name}``: nothing is filled in.

    Text for a model may well have it, so there it must name something of this recipe, or stand for
    a folder.
    """
    for match in _PLACEHOLDER.finditer(text.span.text):
        name, start = match[1], text.span.start
        is_free = not (want.choices or want.form or want.file)
        if is_free and not scope.knows(name) and not _FOLDER.match(text.value):
            continue
        place = Span(text.span.source, start + match.start(), start + match.end())
        message = f"`{match[0]}` stands for itself: nothing is filled into a string"
        advice = "declare the whole text as a `param`, which `--set` can change"
        if scope.knows(name) and text.value == match[0]:
            advice = f"write `{name}` without quotes"
        scope.used.add(name)  # by mistake, which is said once
        found.warning("RL0117", place, message, advice)
