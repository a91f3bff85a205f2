"""A live page in a real browser: what changes is changed in place, and nothing else is lost."""

from __future__ import annotations

import html
from pathlib import Path

from browser import needs_browser, told_by
from made_up_runs import add_step, write_run

from rlc.report.run_page import run_html
from rlc.runtime.journal.database import Journal

pytestmark = needs_browser
# The page as it was in a frame, somebody who reads it, and the page as it is now.
FRAME = """<!doctype html><body style="margin:0">
<iframe style="border:0;width:900px;height:700px" srcdoc="{before}"></iframe><pre id="told"></pre>
<template id="after">{after}</template>
<script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {{
  const view = frame.contentWindow, inner = frame.contentDocument, told = {{}};
  const after = document.getElementById("after").content.textContent;
  const one = (css) => inner.querySelector(css);
  const card = one(".episode");  // of a step that is the last one no more
  card.open = true;
  const text = card.querySelector(".said").firstChild;
  inner.getSelection().setBaseAndExtent(text, 5, text, 12);
  const selected = inner.getSelection().toString();
  const area = one("#chart-main-reward .area");
  area.focus({{preventScroll: true}});
  const metrics = one("#metrics + details");
  metrics.open = true;
  const table = metrics.querySelector(".scroll");
  table.scrollTop = 40;
  one(".zoom button").click();
  const zoom = one(".gantt").style.getPropertyValue("--zoom");
  const plan = one("#plan + details");
  plan.open = !plan.open;
  const wasOpen = plan.open;
  card.scrollIntoView({{behavior: "instant"}});
  const place = card.getBoundingClientRect().top;
  const chart = one("#chart-main-reward");
  const said = () => ({{
    steps: one(".tile b").textContent, state: one(".state").textContent, title: inner.title,
    rows: chart.querySelectorAll("tbody tr").length, findings: !!one("#findings"),
    path: chart.querySelector("path.line").getAttribute("d"),
  }});
  told.before = said();
  view.rlcLive.put(after);
  told.after = said();
  told.kept = {{
    card: card.isConnected && card.open,
    selected: inner.getSelection().toString() === selected && selected.length === 7,
    focus: inner.activeElement === area,
    chart: one("#chart-main-reward") === chart,
    scrolled: table.isConnected && table.scrollTop === 40,
    zoom: zoom === "2" && one(".gantt").style.getPropertyValue("--zoom") === zoom,
    plan: plan.isConnected && plan.open === wasOpen,
    moved: Math.abs(card.getBoundingClientRect().top - place),
  }};
  card.open = false;
  area.blur();
  inner.getSelection().removeAllRanges();
  view.rlcLive.put(after);
  const fresh = new DOMParser().parseFromString(after, "text/html");
  // What somebody has opened or zoomed stays; all else is as in the new page.
  for (const page of [inner, fresh])
    for (const node of page.querySelectorAll("details, .gantt, [data-own]"))
      for (const name of ["open", "style"]) node.removeAttribute(name);
  for (const node of inner.querySelectorAll(".tip")) node.textContent = "";
  told.same = inner.getElementById("content").innerHTML.replace(/\\s+/g, " ")
    === fresh.getElementById("content").innerHTML.replace(/\\s+/g, " ");
  document.getElementById("told").textContent = JSON.stringify(told);
}});
</script>
"""


def test_an_update_loses_nothing_that_somebody_does(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(folder, done=4)
    journal = Journal(folder / "journal.sqlite")
    journal.set_meta(state="interrupted")
    journal.close()
    before = run_html(folder, live=True)
    for step in (5, 6):
        add_step(folder, step)
    rollouts = (folder / "rollouts.jsonl").read_text()
    (folder / "rollouts.jsonl").write_text(rollouts.replace('"step": 4', '"step": 6'))
    journal = Journal(folder / "journal.sqlite")
    journal.set_meta(state="finished")
    journal.close()
    after = run_html(folder, live=True)
    told = told_by(FRAME.format(before=html.escape(before), after=html.escape(after)), tmp_path)
    assert told["before"]["steps"] == "4 of 8"
    assert told["after"]["steps"] == "6 of 8"
    assert "interrupted" in told["before"]["state"]
    assert "finished" in told["after"]["state"]
    assert told["after"]["title"] == "✓ run · rlc"
    assert (told["before"]["rows"], told["after"]["rows"]) == (4, 6)
    assert told["before"]["path"] != told["after"]["path"]
    assert told["kept"].pop("moved") < 2
    assert told["kept"] == dict.fromkeys(told["kept"], True)
    assert told["same"]
