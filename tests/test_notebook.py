"""The example notebooks run as they are, and show what they say."""

from __future__ import annotations

import ast
import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import RECIPES, ROOT

import rlc

RUN, GROUP = NOTEBOOKS = [ROOT / "examples" / f"{name}.ipynb" for name in ("notebook", "one_group")]


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_it_keeps_no_outputs(path: Path) -> None:
    assert all(cell["outputs"] == [] for cell in cells(path, "code"))
    assert all(cell["execution_count"] is None for cell in cells(path, "code"))


async def run_cells(path: Path) -> list[Any]:
    """Run the cells where a loop runs already, as a kernel does, and return what each shows."""
    names: dict[str, Any] = {}
    shown = []
    for cell in cells(path, "code"):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop()
        exec(compile(tree, str(path), "exec"), names)
        assert isinstance(last, ast.Expr), "each cell shows something"
        shown.append(eval(compile(ast.Expression(last.value), str(path), "eval"), names))
    return shown


@pytest.fixture
def _beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "recipes").mkdir()
    shutil.copy(RECIPES / "quickstart.rl", tmp_path / "recipes")
    monkeypatch.chdir(tmp_path / "examples")


@pytest.mark.engine
@pytest.mark.usefixtures("_beside_the_recipe")
def test_its_cells_run() -> None:
    found, explained, summary, history, rewards, frame, reply = asyncio.run(run_cells(RUN))
    assert list(found) == []
    assert "main" in explained._repr_html_()
    assert isinstance(summary, rlc.Summary)
    assert isinstance(history, rlc.History)
    assert "<svg" in summary._repr_html_()
    assert "<svg" in history._repr_html_()
    assert list(rewards) == [1, 2, 3, 4, 5]
    assert frame["reward/mean"].to_dict() == rewards
    assert isinstance(reply, str)
    assert reply


@pytest.mark.engine
@pytest.mark.usefixtures("_beside_the_recipe")
def test_a_group_comes_to_what_it_does_by_hand() -> None:
    found, texts, advantages, datum, losses, apart, taken, other = asyncio.run(run_cells(GROUP))
    assert found.agrees
    assert len(texts) == 4
    assert list(advantages[0]) == pytest.approx(advantages[1], abs=1e-12)
    assert any(sampled and advantage for *_, sampled, advantage in datum)
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert apart < 1e-12
    norm, measured, before, after = taken
    assert norm == pytest.approx(measured, rel=1e-6)
    assert after < before
    assert other.after.formula["advantage"] == "rloo"
    assert "cosine" in other._repr_html_()
