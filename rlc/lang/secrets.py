"""Secret keys in texts: how they are recognised and masked."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlc.lang.source import Source, Span

# Keys of the services for training: their beginning, then at least so many letters and digits.
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|tml|nvapi|pplx|glpat|xox[abprs])-(?=[\w-]*[0-9])[\w-]{16,}"
    r"|(?:hf|gsk|r8|gh[opsur]|github_pat)_(?=\w*[0-9])\w{16,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}"
    r")"
)
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")
_LONG = 20  # characters of one word with digits that is rather a key than a name


def keys_in(source: Source) -> list[Span]:
    """Return the places of keys in a text."""
    return [Span(source, match.start(), match.end()) for match in _KEY.finditer(source.text)]


def is_variable(text: object) -> bool:
    """Return whether a text may name a variable of the environment, and is not itself a key."""
    if not isinstance(text, str) or not _NAME.fullmatch(text) or _KEY.search(text):
        return False
    return len(text) < _LONG or "_" in text or not any(char.isdigit() for char in text)


def masked(text: str) -> str:
    """Return the text with asterisks in place of all but the beginning of each key."""
    return _KEY.sub(lambda match: match[0][:3] + "*" * (len(match[0]) - 3), text)


def masked_line(source: Source, number: int, hidden: Iterable[Span]) -> str:
    """Return a line of a source with its keys masked, and the words of hidden spans."""
    start = source.line_starts[number - 1]
    line = masked(source.line(number))
    for span in hidden:
        if span.source is source:
            first, last = max(0, span.start - start), max(0, span.end - start)
            line = line[:first] + re.sub(r"\w", "*", line[first:last]) + line[last:]
    return line
