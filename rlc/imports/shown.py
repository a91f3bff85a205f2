"""What came from outside, as a message or a comment can show it: one line, printable, short."""

from __future__ import annotations

from typing import Any

LONGEST = 200


def shown(value: Any) -> str:
    """A value as its user wrote it, more or less."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif value is None:
        text = "null"
    else:
        text = str(value)
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
