"""Commands and recipes on the pages of the documentation are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from followed_pages import calls_of_rlc, fences
from page_examples import complete
from paths import ROOT

from rlc.cli.main import _arguments
from rlc.cli.output import UsageError
from rlc.compile.recipe import compile_source
from rlc.lang.render import render_human
from rlc.lang.source import Source

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
GUIDES = [page for page in PAGES if page.parent.name in ("howto", "explanation")]
SHELL = ("sh", "console")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_of_a_page_have_these_arguments(page: Path) -> None:
    """Each call of ``rlc`` in a block for the shell is parsed as the command itself parses it."""
    for fence in fences(page.read_text(encoding="utf-8")):
        for words in calls_of_rlc(fence.text) if fence.kind in SHELL else ():
            assert _arguments(words).command == words[0]


def test_an_argument_that_does_not_exist_is_found() -> None:
    (words,) = calls_of_rlc('$ rlc run "a b.rl" --sett x=1 | tail  # why')
    assert words == ["run", "a b.rl", "--sett", "x=1"]
    with pytest.raises(UsageError, match="no option `--sett`"):
        _arguments(words)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_the_recipes_of_a_guide_have_no_findings(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an example leaves out with ``…`` is put in; the page has the files that it names."""
    monkeypatch.chdir(tmp_path)
    blocks = fences(page.read_text(encoding="utf-8"))
    for fence in blocks:
        if fence.remark == "file":
            path = tmp_path / fence.about
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.text, encoding="utf-8")
    for fence in blocks:
        if fence.kind == "rl":
            whole = "…" not in fence.text and re.search(r"^(train|sft) ", fence.text, re.M)
            text = fence.text if whole else complete(fence.text)
            source = Source(str(tmp_path / "page.rl"), text)
            found = compile_source(source).diagnostics
            told = set(re.findall(r"RL\d{4}", fence.about)) if fence.remark == "finds" else set()
            assert {item.code for item in found} == told, render_human(found, color=False)
