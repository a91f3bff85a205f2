"""Entries of the catalogue for people: what a parameter takes, its default, and formulas."""

from __future__ import annotations

from rlc.catalog import KINDS, NameEntry, Param, find_builtin, plain_default
from rlc.check import bounds
from rlc.explanation.schemes import preset_formulas
from rlc.plan import show

MOST_CHOICES = 16  # of a parameter, that are listed


def type_of(param: Param) -> str:
    """Return what a parameter takes."""
    noun = KINDS[param.type].noun if param.type in KINDS else param.type
    noun = f"list of {noun}" if param.many else noun
    return f"{noun}, or several by name" if param.named else noun


def default_of(param: Param) -> str:
    """Return a default as a recipe would write it; ``…`` if it has no short form."""
    if param.required:
        return "required"
    default = plain_default(param)
    if default == [] and not param.many:
        return "none"
    parts = default if isinstance(default, list) else [default]
    if any(isinstance(part, dict) and part for part in parts):
        return "…"
    return "none" if default is None else show(default, param.type)


def meaning_of(param: Param) -> str:
    """Return what a parameter means, and what it may be."""
    known = param.all_choices()
    choices = f"one of {', '.join(known)}" if 0 < len(known) <= MOST_CHOICES else ""
    return "; ".join(note for note in (param.doc, choices, bounds(param)) if note)


def formulas_of(entry: NameEntry) -> tuple[str, ...]:
    """Return the formulas of an entry, of an advantage preset those of its scheme."""
    preset = None if entry.formula else find_builtin("advantage", entry.name)
    if preset is None:
        return entry.formula
    return tuple(line.text for line in preset_formulas(preset))
