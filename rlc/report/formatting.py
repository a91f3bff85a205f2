"""Numbers and texts for people."""

from __future__ import annotations

import math
import time

_TEXT = 4_000  # characters of one message that a page shows
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}


def moment(seconds: float) -> str:
    """Format seconds since the epoch as a local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def shortened(text: str) -> str:
    """Cut the middle out of a text that is too long for a page, and show control characters as
    their symbols: ``␛``."""
    text = text.translate(_CONTROLS)
    if len(text) <= _TEXT:
        return text
    left_out = len(text) - _TEXT
    return f"{text[: _TEXT // 2]}\n… {left_out:,} characters left out …\n{text[-_TEXT // 2 :]}"


def signed(value: float) -> str:
    """Format a number with its sign, and a mark that needs no colour: ``▲ +0.250``."""
    mark = "▲" if value > 0 else "▼" if value < 0 else "■"
    return f"{mark} {value:+.3f}"


def number(value: float, digits: int = 4) -> str:
    """Format a number with so many significant digits, whole ones with all: ``0.8542``, ``1,474``,
    ``5.03e-09``."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{min(digits, 4)}g}"


def dollars(usd: float | None) -> str:
    """Format a price, with the digits that a small one needs; None is unknown."""
    if usd is None:
        return "unknown"
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"
