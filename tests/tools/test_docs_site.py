"""The documentation site: one build, and what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser import browser, needs_browser
from paths import ROOT

from rlc.catalog.index import BUILTINS
from rlc.cli.main import COMMANDS
from rlc.lang.codes import code_titles

pytest.importorskip("sphinx")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "tools.docs", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return folder


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(re.findall(r'\bid="([^"]+)"', page.read_text("utf-8")))


def test_no_link_is_dead(site: Path) -> None:
    dead = []
    for page in site.rglob("*.html"):
        for link in set(re.findall(r'\b(?:href|src)="([^"]+)"', page.read_text("utf-8"))):
            path, _, fragment = unquote(unescape(link)).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = page.parent / path.partition("?")[0] if path else page
            if target.is_dir():
                target /= "index.html"
            known = (
                target.suffix != ".html" or not fragment or fragment in anchors(target.resolve())
            )
            if not (target.is_file() and known):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert not dead


def test_everything_has_its_place(site: Path) -> None:
    reference = site / "reference"
    for item in BUILTINS:
        page = reference / "builtins" / f"{item.kind}.md"
        assert f"## `{item.name}`\n" in page.read_text("utf-8")
    for code in code_titles():
        assert code.lower() in anchors(reference / "codes" / f"{code[:4]}xx.html")
    assert {f"rlc-{name}" for name in COMMANDS} <= anchors(reference / "commands.html")


def test_each_page_is_there_as_markdown_and_listed(site: Path) -> None:
    source = site.with_name("site.work") / "source"
    pages = [path.relative_to(source).as_posix() for path in source.rglob("*.md")]
    listed = re.findall(r"^- \[[^\n]+\]\((\S+\.md)\)", (site / "llms.txt").read_text("utf-8"), re.M)
    assert sorted(pages) == sorted(listed)
    for page in pages:
        assert (site / page).is_file()
        assert (site / page).with_suffix(".html").is_file()


@needs_browser
def test_pages_fit_a_phone_and_their_menu_opens_by_keyboard(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.resize(390, 900)
        for page in ("reference/models", "reference/plan", "reference/api", "metrics", "index"):
            tab.open((site / f"{page}.html").as_uri())
            tab.until(f"document.readyState === 'complete' && location.href.includes('/{page}.')")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), page
        drawer = "getComputedStyle(document.querySelector('.sidebar-drawer')).visibility"
        assert tab.evaluate(drawer) == "hidden"
        tab.press("Tab", 9)
        assert tab.evaluate("document.activeElement.id") == "__navigation"
        for event in ("keyDown", "keyUp"):
            space = {"type": event, "key": " ", "code": "Space", "windowsVirtualKeyCode": 32}
            tab.call("Input.dispatchKeyEvent", **space)
        tab.until(f"{drawer} === 'visible'")
