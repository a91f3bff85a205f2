"""Templates and what they know: how values are written, and how a state looks."""

from __future__ import annotations

from rlc.plan import elapsed
from rlc.report.episodes import about_line, advantage
from rlc.report.formatting import dollars, moment, number, shortened, signed
from rlc.report.timing import LANES, lane_of
from rlc.runtime import verdict

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
        loader=PackageLoader("rlc.report.pages"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "about": about_line,
        "advantage": advantage,
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
