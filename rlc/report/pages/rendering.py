"""Templates and what they know: how values are written, and how a state looks."""

from __future__ import annotations

from rlc.plan.units import elapsed
from rlc.report.episodes import about_line, advantage
from rlc.report.formatting import moment, shortened, signed
from rlc.report.timing import LANES, lane_of
from rlc.runtime.summary import verdict

# Each state's style, and a sign that says the same as its colour, with the words for it.
_STATES = {
    "finished": ("good", "✓ finished"),
    "running": ("good", "● running"),
    "failed": ("bad", "✕ failed"),
    "nothing learnt": ("bad", "✕ nothing learnt"),
    "damaged": ("bad", "✕ damaged"),
    "budget": ("warn", "■ ended at its budget"),
    "interrupted": ("warn", "‖ interrupted"),
}


def render(page: object, template: str = "report.html.j2") -> str:
    """Render a page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rlc.report.pages"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "elapsed": elapsed,
        "moment": moment,
        "shortened": shortened,
        "signed": signed,
        "advantage": advantage,
        "about": about_line,
        "verdict": verdict,
    }
    environment.globals |= {"lanes": LANES, "lane_of": lane_of, "states": _STATES}
    return environment.get_template(template).render(page=page)
