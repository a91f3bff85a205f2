"""Numbers as people read them."""

from __future__ import annotations

import time

_TEXT = 4_000  # characters of one message that a page shows


def moment(seconds: float | None) -> str:
    """A time of day, from seconds since the epoch; nothing where it is unknown."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def shortened(text: str) -> str:
    """The beginning and the end of a text that is too long for a page."""
    if len(text) <= _TEXT:
        return text
    left_out = len(text) - _TEXT
    return f"{text[: _TEXT // 2]}\n… {left_out:,} characters left out …\n{text[-_TEXT // 2 :]}"


def signed(value: float) -> str:
    """A number with its sign, and a mark that needs no colour: ``▲ +0.250``."""
    mark = "▲" if value > 0 else "▼" if value < 0 else "■"
    return f"{mark} {value:+.3f}"
