"""What the pages are made of: well-formed HTML in which whatever a model says stays text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from attrs import define, field
from made_up_runs import RECIPE, write_run

from rlc.report.pages import page_html
from rlc.report.run_page import run_html

VOID = {"meta", "link", "br", "input", "wbr"}
SHAPES = {"path", "line", "rect"}  # of SVG, closed where they begin
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'& \x00\x1b[31m\x7f \ud800"


@define
class Structure(HTMLParser):
    """Fails on an element that is not closed in its place; gathers what a test asks for."""

    open: list[str] = field(factory=list)
    ids: list[str] = field(factory=list)
    links: list[str] = field(factory=list)
    scripts: int = 0
    elements: list[tuple[str, dict[str, str | None]]] = field(factory=list)
    headings: list[int] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        super().__init__()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, tag
        self.elements.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert not any(name.startswith("on") for name in found), (tag, found)
        self.elements.append((tag, found))
        self.ids += filter(None, [found.get("id")])
        self.links += filter(None, [found.get("href") if tag == "a" else None])
        self.scripts += tag == "script"
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, (tag, self.getpos())
        assert self.open.pop() == tag, self.getpos()


def structure_of(html: str) -> Structure:
    found = Structure()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("html") / "a <b>run</b>"
    write_run(path)
    file = path / "rollouts.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    for record in records:
        for turn in record["turns"]:
            turn["action"] = EVIL
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(scope="module", params=["run", "live", "runs"])
def page(folder: Path, request: pytest.FixtureRequest) -> str:
    other = folder.parent / "other"
    if not other.exists():
        write_run(other, planned=5)
    folders = [folder, other] if request.param == "runs" else [folder]
    return page_html(folders, live=request.param == "live")


def test_every_element_is_closed_and_every_link_has_an_end(page: str) -> None:
    found = structure_of(page)
    assert len(set(found.ids)) == len(found.ids)
    assert {link.removeprefix("#") for link in found.links} <= set(found.ids)
    assert found.headings[0] == 1
    assert found.headings.count(1) == 1
    steps = zip(found.headings, found.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps)


def test_what_is_seen_is_also_said(page: str) -> None:
    """Charts and diagrams have a text, tables have heads, what scrolls can be reached by keys."""
    found = structure_of(page)
    for _, attributes in found.elements:
        if attributes.get("role") in ("img", "group"):
            assert attributes.get("aria-label")
    heads = [attributes for tag, attributes in found.elements if tag == "th"]
    assert all(attributes.get("scope") in ("col", "row") for attributes in heads)
    areas = [a for _, a in found.elements if a.get("class") == "area"]
    assert areas
    assert all(area.get("tabindex") == "0" and area.get("aria-label") for area in areas)


def test_what_a_model_says_stays_text(folder: Path) -> None:
    html = run_html(folder)
    assert structure_of(html).scripts == 3  # two of the page, and what curves are drawn by
    assert "<img" not in html
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in html
    assert "␀␛[31m␡" in html
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", html)
    assert html.encode("utf-8")
    assert "<b>run</b>" not in html
    assert "a &lt;b&gt;run&lt;/b&gt;" in html


def test_tokens_that_cost_nothing_have_no_dollars(tmp_path: Path) -> None:
    local = RECIPE.replace("deepseek-ai/DeepSeek-V3.1", "tiny").replace(
        "budget = limit(usd = $20)", ""
    )
    write_run(tmp_path / "run", recipe=local)
    html = run_html(tmp_path / "run")
    assert "On the embedded engine tokens cost nothing." in html
    assert "79,200" in html
    assert "$" not in html.partition("<script>")[0]
