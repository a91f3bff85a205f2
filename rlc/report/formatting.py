"""Numbers and texts for people, and the templates that show them."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING

from rlc.plan import elapsed, in_dollars
from rlc.report.episodes import about_line, advantage
from rlc.report.timing import LANES, lane_of
from rlc.runtime import verdict

if TYPE_CHECKING:
    from markupsafe import Markup

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


def breakable(text: str) -> Markup:
    """Return a text that breaks after the separators of paths and names, not within a word."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=[./_=:-])(?=\w)", "<wbr>", escape(text)))


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
    return "unknown" if usd is None else in_dollars(usd)


# Each state's style, and a sign that says the same as its colour, with the words for it.
STATES = {
    "finished": ("good", "✓ finished"),
    "running": ("good", "● running"),
    "failed": ("bad", "✕ failed"),
    "nothing learnt": ("bad", "✕ nothing learnt"),
    "damaged": ("bad", "✕ damaged"),
    "budget": ("warn", "■ ended at its budget"),
    "interrupted": ("warn", "‖ interrupted"),
}


def render(page: object, template: str, live: bool = False) -> str:
    """Render a page as HTML; a ``live`` one fetches itself anew where `rlc watch` serves it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rlc.report"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "about": about_line,
        "advantage": advantage,
        "breakable": breakable,
        "dollars": dollars,
        "elapsed": elapsed,
        "moment": moment,
        "number": number,
        "shortened": shortened,
        "signed": signed,
        "verdict": verdict,
    }
    environment.globals |= {"lanes": LANES, "lane_of": lane_of, "states": STATES}
    text = environment.get_template(template).render(page=page, live=live)
    return text.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair is no text
