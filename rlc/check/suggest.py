"""What a message suggests in place of an unknown word."""

from __future__ import annotations

from collections.abc import Sequence

from rlc.lang.diagnostics import Fix, replace
from rlc.lang.source import Span
from rlc.lang.suggest import nearest, sole_nearest

MAX_LISTED = 8


def closest(word: str, candidates: Sequence[str]) -> list[str]:
    """The candidates that were most likely meant: the nearest, else those that contain the word."""
    match = nearest(word, candidates)
    if match:
        return [match]
    plain = word.lower()
    parts = [name for name in candidates if len(plain) > 2 and plain in name.lower()]
    return parts[:3]


def known_values(candidates: Sequence[str], word: str | None = None) -> str:
    """``did you mean …?`` for a word close to some, else what there is to choose from."""
    likely = closest(word, candidates) if word is not None else []
    if likely:
        *others, last = (f"`{name}`" for name in likely)
        return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
    listed = ", ".join(f"`{name}`" for name in candidates[:MAX_LISTED])
    more = len(candidates) - MAX_LISTED
    rest = f" and {more} more" if more > 0 else ""
    return listed + rest if word is None else f"known: {listed}{rest}"


def rename(span: Span, word: str, candidates: Sequence[str]) -> Fix | None:
    """Return the fix that replaces the ``word`` at ``span`` by the one nearest candidate.

    It is a proposal if digits change: `guess2` for `guess1` may be another thing, not a slip.
    None if no single candidate is nearest.
    """
    match = sole_nearest(word, candidates)
    if match is None or span.text not in (word, f'"{word}"'):
        return None
    new = span.text.replace(word, match)
    safe = [c for c in word if c.isdigit()] == [c for c in match if c.isdigit()]
    return replace(span, new, f"write `{new}`", safe)
