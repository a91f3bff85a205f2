"""Changes of a text as edits of the lines that change."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from lsprotocol import types

from rlc.lang.formatter import format_text
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.lsp.positions import Positions


def line_edits(source: Source, new: str, encoding: str) -> list[types.TextEdit]:
    """Return the edits that make a text a new one and leave equal lines alone."""
    positions = Positions(source, encoding)
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (source.text, new))
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    edits = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            where = positions.range(starts[i], starts[j])
            edits.append(types.TextEdit(where, "".join(after[k:m])))
    return edits


def format_edits(source: Source, encoding: str) -> list[types.TextEdit] | None:
    """Return the edits that lay a recipe out the canonical way; None if it has syntax errors."""
    recipe, problems = parse(source)
    if problems.has_errors or not source.text.strip():
        return None
    return line_edits(source, format_text(source, recipe), encoding)
