"""``rlc explain`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import RECIPES

import rlc
from rlc.cli.main import main

SUDOKU = str(RECIPES / "sudoku.rl")
QUICKSTART = str(RECIPES / "quickstart.rl")


def test_the_plan_and_its_price_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--full"]) == 0
    text = capsys.readouterr().out
    assert "togo_t = r_t + 0.9 togo_(t+1)" in text
    assert "TINKER_API_KEY" in text
    assert "\x1b" not in text


def test_the_summary_comes_first_and_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 14
    assert "$67.23 expected" in text
    assert "--full" in text


def test_overrides_and_seed_are_shown_with_their_origin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", SUDOKU, "--full", "--set", "main.steps=7", "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert "stage main: 7 steps" in text
    assert "--set main.steps" in text
    assert "seed 3 (--seed)" in text


def test_json_is_json_even_with_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["stages"][0]["name"] == "main"
    assert list(data["graph"]) == ["nodes", "edges"]
    assert main(["explain", str(tmp_path / "absent.rl"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["diagnostics"][0]["code"] == "RL0001"


def test_errors_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--set", "main.steps=none"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error[" in captured.err


def test_a_price_above_what_is_expected_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bill is what somebody needs to see then; nothing is saved, and nothing runs."""
    path = tmp_path / "dear.rl"
    path.write_text(Path(SUDOKU).read_text() + "\nexpect main.cost.high < $1\n")
    assert main(["explain", str(path)]) == 1
    assert " $67.23 expected" in capsys.readouterr().out
    assert main(["explain", str(path), "--out", str(tmp_path / "plan.json")]) == 1
    assert not (tmp_path / "plan.json").exists()
    compiled = rlc.load(path).compile()
    assert compiled.plan is None
    assert compiled.unmet is not None
    path.write_text(path.read_text() + "\nexpect main.nothing < 1\n")
    assert rlc.load(path).compile().unmet is None


def test_a_rehearsal_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--rehearse", "--full"]) == 0
    text = capsys.readouterr().out
    assert "3 steps on local" in text
    assert "no key and no network" in text


@pytest.mark.parametrize(("format", "start"), [("mermaid", "flowchart TD"), ("dot", "digraph")])
def test_the_graph_is_printed(format: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--graph", format]) == 0
    assert capsys.readouterr().out.startswith(start)
    assert main(["explain", SUDOKU, "--graph", format, "--set", "main.steps=0"]) == 1
    assert capsys.readouterr().out == ""


def test_a_plan_is_saved_and_explained_as_the_recipe_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "plan.json")
    assert main(["explain", QUICKSTART, "--set", "main.steps=7", "--out", path]) == 0
    captured = capsys.readouterr()
    assert "rlc run" in captured.err
    assert main(["explain", path]) == 0
    assert capsys.readouterr().out == captured.out


def test_a_stale_plan_is_shown_with_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, path = tmp_path / "quick.rl", tmp_path / "plan.json"
    text = Path(QUICKSTART).read_text(encoding="utf-8")
    recipe.write_text(text, encoding="utf-8")
    assert main(["explain", str(recipe), "--out", str(path)]) == 0
    recipe.write_text(text.replace("steps     = 50", "steps     = 60"), encoding="utf-8")
    capsys.readouterr()
    assert main(["explain", str(path)]) == 0
    captured = capsys.readouterr()
    assert "50 steps, each" in captured.out
    assert "is stale" in captured.err
    assert "50 → 60" in captured.err


def test_an_edited_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    assert main(["explain", QUICKSTART, "--out", str(path)]) == 0
    path.write_text(path.read_text(encoding="utf-8").replace('"steps": 50', '"steps": 5'))
    capsys.readouterr()
    assert main(["explain", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "was edited" in captured.err
    assert "help: " in captured.err


def test_a_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "rl0204"]) == 0
    assert capsys.readouterr().out.startswith("RL0204: not one of the choices\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan.json", "--set", "main.steps=1"],
        ["plan.json", "--out", "other.json"],
        ["-", "--out", "plan.json"],
        [QUICKSTART, "--out", "absent/plan.json"],
        ["RL9999"],
        ["RL0204", "--json"],
        ["RL0204", "--full"],
    ],
)
def test_what_cannot_be_asked_for_is_said(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []
