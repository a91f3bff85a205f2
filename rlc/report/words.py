"""Numbers as people read them."""

from __future__ import annotations

import time

_TEXT = 4_000  # characters of one message that a page shows


def moment(seconds: float | None) -> str:
    """A time of day, from seconds since the epoch; nothing where it is unknown."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def duration(seconds: float) -> str:
    """``0.42 s``, ``12 s``, ``12 min 05 s``, ``3 h 07 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def age(seconds: float) -> str:
    """Roughly, in one unit: ``12 s``, ``5 min``, ``3 h``, ``12 days``."""
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number:,} {unit}" + "s" * (unit == "day" and number != 1)
    return f"{max(0, int(seconds))} s"


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
