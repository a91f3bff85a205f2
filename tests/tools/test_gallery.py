"""The gallery: what it shows is there, and one of its pages is made."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from paths import RECIPES, ROOT

from rlc.compile.recipe import load
from tools.gallery import SHOWN, command, index_html, made


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_can_be_run_here(name: str) -> None:
    shown = SHOWN[name]
    for settings in shown.settings:
        written = {key: str(value) for key, value in settings.items()}
        compiled = load(RECIPES / f"{shown.recipe}.rl", written)
        assert compiled.plan is not None
        assert {stage.model.base for stage in compiled.plan.stages} == {"tiny"}
        assert bool(compiled.sweeps) or not shown.sweep


def test_the_index_leads_to_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "sweep.html").touch()
    page = index_html(tmp_path)
    assert 'href="sweep.html"' in page
    assert command(SHOWN["sweep"]) in page
    assert "quickstart.html" not in page


@pytest.mark.engine
@pytest.mark.slow
def test_a_page_is_made_of_real_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = made(SHOWN["side_by_side"], {"main.steps": 2})
    assert list(tmp_path.iterdir()) == []
    assert page.startswith("<!doctype html>")
    assert "learning_rate" in page
    assert "spell_backward-2" in page
    assert len(page) < 3_000_000
    assert str(ROOT) not in page
    assert tempfile.gettempdir() not in page
