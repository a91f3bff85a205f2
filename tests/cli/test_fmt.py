"""``rlc fmt`` as a user runs it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from paths import RECIPES

from rlc.cli.main import main

UGLY = "train t { a=1   bb = 2 } # end\n"
CLEAN = "train t {\n  a  = 1\n  bb = 2\n}  # end\n"
BROKEN = "train t { a = }\n"


def rlc_fmt(*args: str) -> int:
    return main(["fmt", *args])


@pytest.fixture
def ugly(tmp_path: Path) -> Path:
    path = tmp_path / "ugly.rl"
    path.write_text(UGLY)
    return path


def test_a_recipe_is_rewritten_once(ugly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlc_fmt(str(ugly)) == 0
    assert ugly.read_text() == CLEAN
    assert capsys.readouterr().out == f"formatted {ugly}\n"
    assert rlc_fmt(str(ugly)) == 0
    assert capsys.readouterr().out == ""


def test_check_names_what_would_change(ugly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlc_fmt("--check", str(ugly)) == 1
    assert ugly.read_text() == UGLY
    assert capsys.readouterr().out == f"would change {ugly}\n"
    ugly.write_text(CLEAN)
    assert rlc_fmt("--check", str(ugly)) == 0


def test_diff_shows_what_would_change(ugly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlc_fmt("--diff", str(ugly)) == 1
    assert ugly.read_text() == UGLY
    out = capsys.readouterr().out
    assert "-train t { a=1   bb = 2 } # end\n" in out
    assert "+  bb = 2\n" in out


def test_a_broken_recipe_is_shown_and_left_alone(
    ugly: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.rl"
    broken.write_text(BROKEN)
    assert rlc_fmt(str(broken), str(ugly), str(tmp_path / "none.rl")) == 1
    assert broken.read_text() == BROKEN
    assert ugly.read_text() == CLEAN
    err = capsys.readouterr().err
    assert "error[RL0010]: expected a value" in err
    assert "error[RL0001]: no such file" in err
    assert "2 errors" in err


def test_standard_input_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UGLY.encode())))
    assert rlc_fmt("-") == 0
    assert capsys.readouterr().out == CLEAN


def test_windows_line_ends_are_kept_and_no_change(tmp_path: Path) -> None:
    path = tmp_path / "windows.rl"
    path.write_bytes(CLEAN.replace("\n", "\r\n").encode())
    assert rlc_fmt("--check", str(path)) == 0
    path.write_bytes(UGLY.replace("\n", "\r\n").encode())
    assert rlc_fmt(str(path)) == 0
    assert path.read_bytes() == CLEAN.replace("\n", "\r\n").encode()


def test_no_path_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as exit_info:
        rlc_fmt()
    assert exit_info.value.code == 2


def test_a_folder_is_all_its_recipes(
    ugly: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.rl").write_text(UGLY)
    (tmp_path / "notes.txt").write_text(UGLY)
    assert rlc_fmt("--check", str(tmp_path)) == 1
    assert capsys.readouterr().out.count("would change") == 2
    assert rlc_fmt(str(tmp_path)) == 0
    assert (tmp_path / "deep" / "b.rl").read_text() == CLEAN
    assert (tmp_path / "notes.txt").read_text() == UGLY


def test_a_folder_without_recipes_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rlc_fmt(str(tmp_path)) == 2
    assert "no recipe (*.rl) in" in capsys.readouterr().err


def test_check_and_diff_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, shown in (("--check", "would change <stdin>\n"), ("--diff", "+  bb = 2\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UGLY.encode())))
        assert rlc_fmt(option, "-") == 1
        out = capsys.readouterr().out
        assert shown in out
        assert (CLEAN in out) is False


def test_the_recipes_of_the_project_are_formatted() -> None:
    assert rlc_fmt("--check", str(RECIPES)) == 0
