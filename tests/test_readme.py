"""The README is true: its recipe, its commands, its excerpt of ``explain``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import RECIPES, ROOT

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.lang.syntax import parse

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(marker: str) -> str:
    """The fenced block after ``<!-- marker -->``."""
    match = re.search(rf"<!-- {marker} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert match, marker
    return match[1]


def test_the_recipe_is_the_quickstart() -> None:
    shown = re.search(r"```rl\n(.*?)```", README, re.DOTALL)
    assert shown
    recipe, found = parse(Source("README.md", shown[1]))
    path = RECIPES / "quickstart.rl"
    quickstart, _ = parse(Source(path.name, path.read_text(encoding="utf-8")))
    assert not found
    assert recipe.decls == tuple(decl for decl in quickstart.decls if decl.kind.id != "test")


def test_the_page_of_the_language_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "qwen.rl").write_text(
        'model policy { base = "Qwen/Qwen3-8B"  renderer = qwen3_instruct }'
    )
    monkeypatch.chdir(tmp_path)
    compiled = compile_source(Source("README.rl", block("language")))
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]


def test_it_is_short_and_has_small_pictures() -> None:
    assert len(README.split()) <= 1_800
    pictures = re.findall(r"!\[[^\]]+\]\((\S+)\)", README)
    assert len(pictures) == 2
    for picture in pictures:  # `python -m tools.pictures` takes them
        assert 5_000 < (ROOT / picture).stat().st_size < 60_000


def explained(*args: str) -> str:
    command = [str(Path(sys.executable).with_name("rlc")), "explain", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout


def test_the_excerpts_of_explain_are_what_it_prints() -> None:
    assert block("summary") == explained("recipes/sudoku.rl")
    shown = explained("--full", "recipes/quickstart.rl")
    for part in block("explain").split("…\n"):
        assert part in shown


def test_both_commands_install_what_was_tested() -> None:
    for marker in ("run-command", "test-command"):
        assert "-c constraints.txt" in block(marker)
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "torch==2.13.0\n" in constraints
