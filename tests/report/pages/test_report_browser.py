"""The page in a real browser, where there is one: layout, scripts, colours."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, told_by
from made_up_runs import write_run

from rlc.report.run_page import run_html

pytestmark = needs_browser
# The page in a frame of the wanted width, and what is to be known of it.
FRAME = """<!doctype html><body style="margin:0">
<iframe style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe><pre id="told"></pre>
<script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {{
  const inner = frame.contentDocument, root = inner.documentElement, told = {{}};
  const measure = () => {{
    const outside = [];
    for (const element of inner.body.querySelectorAll("*")) {{
      const box = element.getBoundingClientRect();
      const cut = element.closest(".scroll, .gantt, .ys, svg");
      if (!cut && box.width && (box.right > root.clientWidth + 1 || box.left < -1))
        outside.push(element.outerHTML.slice(0, 120));
    }}
    return {{wide: root.scrollWidth, room: root.clientWidth, outside}};
  }};
  told.closed = measure();
  for (const details of inner.querySelectorAll("details")) details.open = true;
  told.open = measure();
  const charts = [...inner.querySelectorAll(".chart")].map((c) => c.getBoundingClientRect());
  told.overlaps = charts.filter((a, i) => charts.some((b, j) => i < j && a.left < b.right - 1 &&
    b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length;
  told.charts = charts.length;
  const area = inner.querySelector("#chart-main-reward .area");
  area.dispatchEvent(new KeyboardEvent("keydown", {{key: "ArrowLeft", bubbles: true}}));
  told.tip = area.querySelector(".tip").textContent;
  const drawn = () => [...inner.querySelectorAll(".chart path")].map((p) => p.getAttribute("d"));
  const bySteps = drawn();
  told.by = {{}};
  for (const radio of inner.querySelectorAll(".by input")) {{
    radio.click();
    area.dispatchEvent(new KeyboardEvent("keydown", {{key: "End", bubbles: true}}));
    const ticks = [...inner.querySelectorAll("#chart-main-reward .xs span")];
    told.by[radio.value] = [area.querySelector(".tip").textContent.split(" · ")[0],
      ticks.map((tick) => tick.textContent), area.getAttribute("aria-label").split(":")[0],
      drawn().some((d) => /NaN|undefined/.test(d))];
  }}
  inner.querySelector(".by input").click();
  told.back = JSON.stringify(drawn()) === JSON.stringify(bySteps);
  inner.querySelector(".zoom button").click();
  const gantt = inner.querySelector(".gantt");
  told.zoomed = gantt.scrollWidth / gantt.clientWidth;
  told.ground = getComputedStyle(inner.body).backgroundColor;
  told.text = inner.body.innerText;
  document.getElementById("told").textContent = JSON.stringify(told);
}});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser") / "run"
    write_run(folder, planned=80)
    return run_html(folder)


def look_at(page: str, width: int, folder: Path) -> dict[str, Any]:
    """What the browser makes of the page; fails on anything that it writes to the console."""
    return told_by(FRAME.format(width=width, page=html.escape(page)), folder)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_works(page: str, width: int, tmp_path: Path) -> None:
    told = look_at(page, width, tmp_path)
    for state in ("closed", "open"):
        assert told[state]["outside"] == []
        assert told[state]["wide"] <= told[state]["room"] == width
    assert told["charts"] >= 9
    assert told["overlaps"] == 0
    assert re.match(r"step 79 · guess 0\.\d+ · spell 0\.\d+ · all 0\.\d+$", told["tip"])
    assert told["by"] == {
        "step": ["step 80", ["20", "40", "60", "80"], "Reward by step", False],
        "time": ["time 2:32", ["0 s", "1:00", "2:00"], "Reward by time", False],
        "tokens": ["tokens 792K", ["0", "200K", "400K", "600K"], "Reward by tokens", False],
        "dollars": [
            "dollars $2.18",
            ["$0", "$0.5", "$1", "$1.5", "$2"],
            "Reward by dollars",
            False,
        ],
    }
    assert told["back"]
    assert told["zoomed"] == pytest.approx(2, abs=0.1)
    for text in ("finished", "80 of 80", "Where the time went", "What is 80 & <b>1</b>?", "grpo"):
        assert text in told["text"]


def test_the_console_is_watched(tmp_path: Path) -> None:
    """A page with a mistake in its script is one that fails."""
    with pytest.raises(AssertionError, match="CONSOLE"):
        look_at("<script>nobody.knows()</script>", 390, tmp_path)
