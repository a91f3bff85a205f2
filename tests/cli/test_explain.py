"""``rlc explain`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlc.cli.main import main

ROOT = Path(__file__).parents[2]
SUDOKU = str(ROOT / "recipes" / "sudoku.rl")


def test_the_plan_and_its_price_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU]) == 0
    text = capsys.readouterr().out
    assert "G_t = r_t + 0.9 G_(t+1)" in text
    assert "TINKER_API_KEY" in text
    assert "\x1b" not in text


def test_overrides_and_seed_are_shown_with_their_origin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", SUDOKU, "--set", "main.steps=7", "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert "stage main: 7 steps" in text
    assert "--set main.steps" in text
    assert "seed 3 (--seed)" in text


def test_json_is_json_even_with_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["name"] == "main"
    assert main(["explain", str(tmp_path / "absent.rl"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["diagnostics"][0]["code"] == "RL0001"


def test_errors_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--set", "main.steps=none"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error[" in captured.err


def test_a_rehearsal_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SUDOKU, "--rehearse"]) == 0
    text = capsys.readouterr().out
    assert "3 steps on local" in text
    assert "no key and no network" in text
