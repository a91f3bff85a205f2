"""Applying the fixes of diagnostics to their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from rlc.lang.diagnostics import Diagnostic, Diagnostics, Severity
from rlc.lang.source import Source
from rlc.records import frozen

MAX_ROUNDS = 20  # a fix may bring another mistake to light; this many in a row never happen
MAX_TRIED = 20  # fixes that are tried one by one


@frozen
class FixResult:
    """A text with its fixes applied: ``applied`` in the order they were, and what remains."""

    source: Source
    applied: tuple[Diagnostic, ...]
    remaining: Diagnostics


def fix_all(source: Source, check: Callable[[Source], Diagnostics]) -> FixResult:
    """Apply safe fixes and check again, until none is left that helps.

    A fix helps if its mistake is gone afterwards and there are no more errors than before; any
    other is left to the author. Only ``source`` changes: a mistake in a file that it imports is
    fixed where that is checked.
    """
    applied: list[Diagnostic] = []
    seen = {source.text}
    found = check(source)
    for _ in range(MAX_ROUNDS):
        better = _improved(source, found, check)
        if better is None or better.source.text in seen:
            break
        source, found = better.source, better.remaining
        seen.add(source.text)
        applied += better.applied
    return FixResult(source, tuple(applied), found)


def _improved(
    source: Source, found: Diagnostics, check: Callable[[Source], Diagnostics]
) -> FixResult | None:
    """Return all fixes that help at once; if they do not together, those that do alone."""
    whole = _tried(source, found, found, check)
    if whole.applied and _helps(found, whole):
        return whole
    fixable = [item for item in found if item.fix is not None and item.fix.safe][:MAX_TRIED]
    alone = [item for item in fixable if _helps(found, _tried(source, found, [item], check))]
    for chosen in (alone, alone[:1]):
        some = _tried(source, found, chosen, check)
        if some.applied and _helps(found, some):
            return some
    return None


def _tried(
    source: Source,
    found: Diagnostics,
    chosen: Iterable[Diagnostic],
    check: Callable[[Source], Diagnostics],
) -> FixResult:
    """Return the text with the fixes of ``chosen``, and the findings in it."""
    text, done = apply_fixes(source, chosen)
    if not done:
        return FixResult(source, (), found)
    changed = Source(source.name, text)
    return FixResult(changed, tuple(done), check(changed))


def _helps(before: Diagnostics, fixed: FixResult) -> bool:
    def kind(item: Diagnostic) -> tuple[str, str]:
        return item.code, item.message

    def errors(found: Diagnostics) -> int:
        return sum(item.severity is Severity.ERROR for item in found)

    had, has = Counter(map(kind, before)), Counter(map(kind, fixed.remaining))
    gone = Counter(map(kind, fixed.applied))
    are_gone = all(has[item] <= had[item] - count for item, count in gone.items())
    return are_gone and errors(fixed.remaining) <= errors(before)


def apply_fixes(source: Source, found: Iterable[Diagnostic]) -> tuple[str, list[Diagnostic]]:
    """Return the text with every safe fix that overlaps no earlier one, and the findings fixed."""
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
    """Return whether two edits touch the same characters, or insert two things at one place."""
    return (a[:2] == b[:2] and a[2] != b[2]) or (a[0] < b[1] and b[0] < a[1])
