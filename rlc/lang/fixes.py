"""Applying the fixes of diagnostics to the text they were found in."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import frozen

from rlc.lang.diagnostics import Diagnostic, Diagnostics
from rlc.lang.source import Source

MAX_ROUNDS = 20  # a fix may bring another mistake to light; this many in a row never happen


@frozen
class Fixed:
    """A text with its fixes applied: ``applied`` in the order they were, and what remains."""

    source: Source
    applied: tuple[Diagnostic, ...]
    remaining: Diagnostics


def fix_all(source: Source, check: Callable[[Source], Diagnostics]) -> Fixed:
    """Apply safe fixes and check again, until none is left.

    Only ``source`` changes: a mistake in a file that it imports is fixed where that is checked.
    """
    applied: list[Diagnostic] = []
    seen = {source.text}
    found = check(source)
    for _ in range(MAX_ROUNDS):
        text, done = apply_fixes(source, found)
        if not done or text in seen:
            break
        seen.add(text)
        applied += done
        source = Source(source.name, text)
        found = check(source)
    return Fixed(source, tuple(applied), found)


def apply_fixes(source: Source, found: Iterable[Diagnostic]) -> tuple[str, list[Diagnostic]]:
    """The text with every safe fix that overlaps no earlier one, and whose fixes those were."""
    edits: list[tuple[int, int, str]] = []
    done = []
    for item in found:
        if item.fix is None or not item.fix.safe:
            continue
        own = [(span.start, span.end, text) for span, text in item.fix.edits]
        is_within = all(span.source is source for span, _ in item.fix.edits)
        if is_within and not any(_overlap(a, b) for a in own for b in edits):
            edits += own
            done.append(item)
    text = source.text
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text, done


def _overlap(a: tuple[int, int, str], b: tuple[int, int, str]) -> bool:
    """Whether two edits touch the same characters, or insert at the same place."""
    return (a[0], a[1]) == (b[0], b[1]) or (a[0] < b[1] and b[0] < a[1])
