"""``rlc run plan.json`` runs exactly that plan, or refuses it before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import RECIPES, ROOT
from run_support import assert_same

from rlc.cli.main import main

QUICKSTART = RECIPES / "quickstart.rl"
JUDGED = ROOT / "tests/check/sound/judged_replies.rl"
SMALL = [
    *("--set", "main.steps=1"),
    *("--set", "main.batch=groups(2, group_size = 8)"),
    *("--set", "main.sampling.max_tokens=8"),
]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved plan beside its recipe, in the current folder."""
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "quick.rl"
    recipe.write_text(QUICKSTART.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["explain", "quick.rl", *SMALL, "--seed", "3", "--out", "plan.json"]) == 0
    return tmp_path / "plan.json"


@pytest.mark.plain
@pytest.mark.parametrize(("recipe", "options"), [(QUICKSTART, SMALL), (JUDGED, ["--rehearse"])])
def test_it_is_the_run_of_its_recipe(
    recipe: Path, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [*options, "--seed", "3"]
    assert main(["explain", str(recipe), *options, "--out", "plan.json"]) == 0
    assert main(["run", str(recipe), *options, "--run-dir", "one", "--quiet"]) == 0
    assert main(["run", "plan.json", "--run-dir", "other", "--quiet"]) == 0
    assert_same(Path("one"), Path("other"))
    one, other, saved = (
        json.loads((tmp_path / run / "plan.json").read_text()) for run in ("one", "other", ".")
    )
    assert one["plan_hash"] == other["plan_hash"] == saved["plan_hash"]
    assert one["seed"] == other["seed"] == 3


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, status: int) -> str:
    capsys.readouterr()
    assert main(["run", *arguments, "--run-dir", "run"]) == status
    assert not Path("run").exists()
    return capsys.readouterr().err


def test_a_stale_plan_is_refused(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = plan.with_name("quick.rl")
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("3e-4", "1e-4"), encoding="utf-8")
    message = refused(capsys, str(plan), status=1)
    assert "is stale" in message
    assert "main.optimizer.learning_rate  0.0003 → 0.0001" in message
    assert "rlc explain" in message


def test_an_edited_plan_is_refused(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = plan.read_text(encoding="utf-8").replace(
        '"seed": 3,\n  "stages"', '"seed": 4,\n  "stages"'
    )
    plan.write_text(text, encoding="utf-8")
    message = refused(capsys, str(plan), status=1)
    assert "was edited" in message
    assert "seed  4 → 3" in message


def test_options_do_not_go_with_a_plan(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, str(plan), "--set", "main.steps=2", status=2)
    assert "is run as it is" in message
    assert "cannot read absent.json" in refused(capsys, "absent.json", status=1)
