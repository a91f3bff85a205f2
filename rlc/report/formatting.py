"""Numbers and texts for people."""

from __future__ import annotations

import math
import time

_TEXT = 4_000  # characters of one message that a page shows


def moment(seconds: float) -> str:
    """Format seconds since the epoch as a local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def shortened(text: str) -> str:
    """Cut the middle out of a text that is too long for a page."""
    if len(text) <= _TEXT:
        return text
    left_out = len(text) - _TEXT
    return f"{text[: _TEXT // 2]}\n… {left_out:,} characters left out …\n{text[-_TEXT // 2 :]}"


def signed(value: float) -> str:
    """Format a number with its sign, and a mark that needs no colour: ``▲ +0.250``."""
    mark = "▲" if value > 0 else "▼" if value < 0 else "■"
    return f"{mark} {value:+.3f}"


def number(value: float) -> str:
    """Format a number with six significant digits: ``0.854167``, ``1,474``, ``5.03e-09``."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e6:
        digits = max(0, 5 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.4g}"
