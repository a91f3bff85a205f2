"""``rlc run --resume`` with a recipe beside it, and what is said of a folder that is of no use."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import RECIPES

from rlc.cli.main import main
from rlc.compile.recipe import load
from rlc.runtime.journal.folder import RunFolder

RECIPE = RECIPES / "quickstart.rl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of the recipe that has not done a step yet."""
    plan = load(RECIPE).plan
    assert plan is not None
    RunFolder.create(tmp_path / "run", plan).close()
    return tmp_path / "run"


def test_a_recipe_that_has_changed_is_shown_with_its_changes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["run", str(RECIPE), "--resume", str(folder), "--set", "main.steps=7"])
    said = capsys.readouterr().err
    assert status == 1
    assert "main.steps" in said
    assert "→ 7" in said
    assert f"rlc run --resume {folder}` goes on with the plan that was begun" in said
    assert (folder / "journal.sqlite").exists()


def test_a_folder_in_use_says_by_whom(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holder = RunFolder.resume(folder)
    status = main(["run", "--resume", str(folder)])
    holder.close()
    assert status == 1
    assert "another process (process " in capsys.readouterr().err
