"""``rlc check --fix``, ``--diff`` and the formats for programs, as a user runs them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from paths import RECIPES

from rlc.cli.main import main

CLEAN = (RECIPES / "quickstart.rl").read_text(encoding="utf-8")
# Three mistakes with one sensible reading, and one that needs its author.
SLIPPED = CLEAN.replace("lora_rank = 8", "lora_rank: 8")
SLIPPED = SLIPPED.replace("group_size = 8)", "group_size = 8")
SLIPPED = SLIPPED.replace("steps     = 50", "steps     == 50")
UNCLEAR = SLIPPED.replace("max_tokens = 16", "max_tokens = true")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.rl"
    path.write_text(SLIPPED, encoding="utf-8")
    return path


def test_a_check_says_how_many_can_be_corrected(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(recipe)]) == 1
    assert "\n3 errors\n3 with a clear correction: `rlc check --fix`" in capsys.readouterr().out
    recipe.write_text(CLEAN.replace("max_tokens = 16", "max_tokens = true"), encoding="utf-8")
    assert main(["check", str(recipe)]) == 1
    assert "--fix" not in capsys.readouterr().out


def test_fix_corrects_the_file_and_says_what(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--fix", str(recipe)]) == 0
    assert recipe.read_text(encoding="utf-8") == CLEAN.replace("lora_rank = 8", "lora_rank = 8")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"fixed {recipe}:10:")
    assert [line.split()[0] for line in lines] == ["fixed", "fixed", "fixed", "1"]
    assert lines[-1] == "1 recipe checked, no findings"
    assert main(["check", str(recipe)]) == 0


def test_what_needs_its_author_remains(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text(UNCLEAR, encoding="utf-8")
    assert main(["check", "--fix", str(recipe)]) == 1
    out = capsys.readouterr().out
    assert out.count("fixed ") == 3
    assert "error[RL0201]" in out
    assert out.endswith("1 error\n")
    assert "max_tokens = true" in recipe.read_text(encoding="utf-8")


def test_diff_shows_and_changes_nothing(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--diff", str(recipe)]) == 1
    assert recipe.read_text(encoding="utf-8") == SLIPPED
    out = capsys.readouterr().out
    assert "-  lora_rank: 8\n+  lora_rank = 8\n" in out
    assert out.startswith("--- ")  # a patch, and nothing else
    recipe.write_text(CLEAN, encoding="utf-8")
    assert main(["check", "--diff", str(recipe)]) == 0
    assert capsys.readouterr().out == ""


def test_a_clean_file_is_not_touched(recipe: Path) -> None:
    recipe.write_text(CLEAN, encoding="utf-8")
    recipe.chmod(0o444)
    before = recipe.stat().st_mtime_ns
    assert main(["check", "--fix", str(recipe)]) == 0
    assert recipe.stat().st_mtime_ns == before


def test_line_ends_and_permissions_are_kept(recipe: Path) -> None:
    recipe.write_bytes(SLIPPED.replace("\n", "\r\n").encode())
    recipe.chmod(0o640)
    assert main(["check", "--fix", str(recipe)]) == 0
    assert recipe.read_bytes() == CLEAN.replace("\n", "\r\n").encode()
    assert recipe.stat().st_mode & 0o777 == 0o640


def test_standard_input_is_fixed_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SLIPPED.encode())))
    assert main(["check", "--fix", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.out == CLEAN
    assert "fixed <stdin>:10:" in captured.err


def test_an_imported_file_is_fixed_only_where_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library, recipe = tmp_path / "lib.rl", tmp_path / "main.rl"
    head, tail = CLEAN.split("# A game of several turns.")
    library.write_text(head.replace("lora_rank = 8", "lora_rank: 8"), encoding="utf-8")
    recipe.write_text(f'import "lib.rl"\n#{tail}', encoding="utf-8")
    assert main(["check", "--fix", str(recipe)]) == 1
    assert "lora_rank: 8" in library.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["check", "--fix", str(library), str(recipe)]) == 0
    assert "lora_rank = 8" in library.read_text(encoding="utf-8")


def test_a_mistake_in_a_shared_file_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, tail = CLEAN.split("# A game of several turns.")
    (tmp_path / "lib.txt").write_text(head.replace("lora_rank = 8", "lora_rank: 8"))
    for name in ("a", "b"):
        (tmp_path / f"{name}.rl").write_text(f'import "lib.txt"\n#{tail}', encoding="utf-8")
    assert main(["check", str(tmp_path)]) == 1
    assert "\n1 error\n" in capsys.readouterr().out


def test_json_carries_the_fix(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "json", str(recipe)]) == 1
    first = json.loads(capsys.readouterr().out)[0]
    assert first["fix"]["safe"] is True
    assert first["fix"]["edits"][0]["replacement"] == " ="
    assert {"code", "severity", "message", "file", "line", "column"} < first.keys()


def test_sarif_is_one_log_for_all_files(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "second.rl").write_text(UNCLEAR, encoding="utf-8")
    assert main(["check", "--format", "sarif", str(tmp_path)]) == 1
    log = json.loads(capsys.readouterr().out)
    (run,) = log["runs"]
    files = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in run["results"]
    }
    assert len(files) == 2
    recipe.write_text(CLEAN, encoding="utf-8")
    assert main(["check", "--format", "sarif", str(recipe)]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"] == []


def test_github_prints_commands_and_nothing_else(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--format", "github", str(recipe)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("::error file=") for line in lines)
    recipe.write_text(CLEAN, encoding="utf-8")
    assert main(["check", "--format", "github", str(recipe)]) == 0
    assert capsys.readouterr().out == ""


def test_a_folder_skips_hidden_folders_and_a_file_comes_once(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text(CLEAN, encoding="utf-8")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "old.rl").write_text(SLIPPED, encoding="utf-8")
    assert main(["check", str(recipe), str(tmp_path)]) == 0
    assert capsys.readouterr().out == "1 recipe checked, no findings\n"
