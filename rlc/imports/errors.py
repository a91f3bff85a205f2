"""Input that cannot be imported, and values of it in messages and comments."""

from __future__ import annotations

from typing import Any

from rlc.errors import Error

LONGEST = 200


class InputError(Error):
    """Input that cannot become a recipe."""


def shown(value: Any) -> str:
    """Return a value as its user wrote it, more or less: on one line, printable, short."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif value is None:
        text = "null"
    else:
        text = str(value)
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
