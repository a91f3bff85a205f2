"""Descriptions of the words of a recipe in Markdown, for hovers and proposals."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache

from attrs import evolve

from rlc.algo import Input, Operation
from rlc.catalog import (
    BY_STRING,
    KINDS,
    SCALARS,
    Builtin,
    Declaration,
    NameEntry,
    Param,
    entries,
    example_of,
)
from rlc.check import NamedDecl, Note, WrittenDefault
from rlc.explanation import default_of, formulas_of, meaning_of, type_of
from rlc.lang import BlockDecl, ValueDecl, string_value

_LINES = 16  # of a declaration, that are shown


@cache
def _entries() -> dict[tuple[str, str], NameEntry]:
    return {(entry.kind, entry.name): entry for entry in entries()}


@cache
def _by_value() -> dict[str, NameEntry]:
    return {name: entry for (kind, name), entry in _entries().items() if kind in BY_STRING}


def entry_of(value: str) -> NameEntry | None:
    """Return what the catalogue says of a model, an environment and the like; None if nothing."""
    return _by_value().get(value)


def default_text(param: Param) -> str:
    """Return the default of a parameter as it is written, "required" if it has none."""
    return param.default.text if isinstance(param.default, WrittenDefault) else default_of(param)


def signature(name: str, params: Iterable[Param]) -> tuple[str, list[str]]:
    """Return how something is called, and the labels of its parameters in that text."""
    labels = [p.name if p.required else f"{p.name} = {default_text(p)}" for p in params]
    return f"{name}({', '.join(labels)})", labels


def parameter(param: Param, owner: str | None = None) -> str:
    """Describe a field or an argument of ``owner``."""
    of = f" of `{owner}`" if owner is not None else ""
    default = f", default `{default_text(param)}`"
    if default_text(param) == "required":
        default = ", required" if owner is not None else ""
    text = f"**{param.name}**{of}: {type_of(param)}{default}\n\n{meaning(param)}"
    kind = KINDS.get(param.type)
    return f"{text}\n\n{_code(f'{param.name} = {kind.example}')}" if kind else text


def meaning(param: Param) -> str:
    """Return what a parameter means and may be; the default of one of a recipe is only text."""
    plain = evolve(param, default=None) if isinstance(param.default, WrittenDefault) else param
    return meaning_of(plain)


def builtin(item: Builtin) -> str:
    """Describe a builtin: how it is called, what it is, its formula, its parameters, an example."""
    known = _entries().get((item.kind, item.name))
    parts = [_code(item.name if item.word else signature(item.name, item.params)[0]), item.doc]
    if known is not None and (formulas := formulas_of(known)):
        parts.append(_code("\n".join(formulas), ""))
    parts.append(_params(item.params))
    parts.append(f"For example:\n{_code(example_of(item))}")
    return _joined(parts)


def entry(item: NameEntry) -> str:
    """Describe a model, an environment and the like, with all that is known of it."""
    facts = "\n".join(f"- {name}: {value}" for name, value in item.facts.items())
    doc = f"{item.doc}: {item.reason}" if item.reason else item.doc
    return _joined([f"**{item.name}**", doc, facts, _code(item.usage) if item.usage else ""])


def declaration(item: Declaration) -> str:
    """Describe a kind of declaration and its fields."""
    return _joined([_code(item.written()), item.doc, _params(item.fields)])


def declared(decl: NamedDecl, seen_from: str = "") -> str:
    """Describe what a recipe declares, with the comment above it."""
    source, start = decl.span.source, decl.span.start
    lines = decl.span.text.splitlines()
    more = ["  …"] if len(lines) > _LINES else []
    where = ""
    if seen_from and source.name != seen_from:
        path = os.path.relpath(source.name, os.path.dirname(seen_from))
        where = f"declared in `{path}`"
    comment = re.search(r"(?:^[ \t]*#[^\n]*\n)+[ \t]*\Z", source.text[:start], re.M)
    words = (line.strip().lstrip("#").strip() for line in comment[0].split("\n")) if comment else ()
    doc = " ".join(" ".join(words).split())
    return _joined([_code("\n".join([*lines[:_LINES], *more])), doc, where])


def hover(at: Note, text: str, seen_from: str) -> str | None:
    """Return what to say about a word of a recipe; None if there is nothing to say."""
    what = at.what
    if at.role == "literal":
        known = entry_of(string_value(text)) if text.startswith('"') else None
        return entry(known) if known else parameter(at.want) if at.want is not None else None
    if at.role == "type":
        known_as = KINDS[text].noun if text in KINDS else SCALARS.get(text)
        return f"`{text}`: {known_as}" if known_as else None
    if at.role == "word" and isinstance(what, Param):
        return f"`{text}`, one of the words of\n\n{parameter(what)}"
    match what:
        case Builtin():
            return builtin(what)
        case Declaration():
            return declaration(what)
        case BlockDecl() | ValueDecl():
            return declared(what, seen_from)
        case Param():
            return parameter(what, at.owner)
        case Operation():
            return _joined([_code(what.usage), what.doc])
        case Input():
            return _joined([f"`{what.name}`: {what.doc}", f"one for each {what.shape}"])
    return None


def _params(params: tuple[Param, ...]) -> str:
    lines = []
    for param in params:
        default = "" if default_text(param) == "required" else f" = `{default_text(param)}`"
        lines.append(f"- **{param.name}**{default}: {meaning(param)}")
    return "\n".join(lines)


def _code(text: str, language: str = "rl") -> str:
    return f"```{language}\n{text}\n```"


def _joined(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part)
