"""How each builtin and each declaration stands in a recipe."""

from __future__ import annotations

import textwrap

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import BUILTINS, KINDS
from rlc.catalog.records import Builtin, Declaration, Param


def example_of(item: Builtin) -> str:
    """Return a declaration with a builtin in it; `…` stands for its other fields."""
    declaration, param = place_of(item.kind)
    value = f"[{item.usage()}]" if param.many else item.usage()
    fields = item.example or f"{param.name} = {value}"
    is_stage = declaration.traits is not None
    body = textwrap.indent(f"{fields}\n…" if is_stage else fields, "  ")
    return f"{declaration.kind} {'main' if is_stage else 'tried'} {{\n{body}\n}}"


def example_of_declaration(item: Declaration) -> str:
    """Return a declaration as a recipe has it."""
    if item.is_block:
        return f"{item.kind} tried {{\n{textwrap.indent(_aligned(item.example), '  ')}\n}}"
    if item.example or item.form is not None:
        return item.example or str(item.form)
    assert item.value is not None
    return f"{item.kind} tried = {KINDS[item.value].example}"


def _aligned(fields: str) -> str:
    """Return fields, one a line, as the formatter sets them."""
    pairs = [line.split(" = ", 1) for line in fields.splitlines()]
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:{width}} = {value}" for name, value in pairs)


def place_of(kind: str) -> tuple[Declaration, Param]:
    """Return the declaration, with its field, where things of a kind stand, be it as a part of what
    stands there. Raise KeyError if there is none."""
    found = [
        (declaration, param)
        for declaration in DECLARATIONS.values()
        for param in declaration.fields
        if kind in (param.type, param.also)
    ]
    if found:  # best where it has to stand, and in `train`
        return min(found, key=lambda place: (not place[1].required, place[0].kind != "train"))
    parts = [other.name for other in KINDS.values() if kind in (other.step, other.before_then)]
    parts += [item.kind for item in BUILTINS if any(kind in (p.type, p.also) for p in item.params)]
    return place_of(next(part for part in parts if part != kind))
