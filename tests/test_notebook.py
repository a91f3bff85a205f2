"""The example notebook runs as it is, and shows what it says."""

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

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_it_keeps_no_outputs() -> None:
    assert all(cell["outputs"] == [] for cell in cells("code"))
    assert all(cell["execution_count"] is None for cell in cells("code"))


async def run_cells() -> list[Any]:
    """Run the cells where a loop runs already, as a kernel does, and return what each shows."""
    names: dict[str, Any] = {}
    shown = []
    for cell in cells("code"):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop()
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        assert isinstance(last, ast.Expr), "each cell shows something"
        shown.append(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names))
    return shown


@pytest.mark.engine
def test_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "recipes").mkdir()
    shutil.copy(RECIPES / "quickstart.rl", tmp_path / "recipes")
    monkeypatch.chdir(tmp_path / "examples")
    found, explained, summary, history, rewards, frame, reply = asyncio.run(run_cells())
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
