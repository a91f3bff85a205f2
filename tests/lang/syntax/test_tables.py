"""The prepared grammar and its cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlc.lang.source import Source
from rlc.lang.syntax import tables
from rlc.lang.syntax.build import TreeBuilder
from rlc.lang.syntax.tables import build_tables, grammar_text, load_tables


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_tables.cache_clear()
    yield
    load_tables.cache_clear()


def test_the_cache_gives_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = load_tables()
    folder = tmp_path / "rlc"
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    load_tables.cache_clear()
    monkeypatch.setattr(tables, "build_tables", None)
    assert load_tables().states == built.states
    assert load_tables().rules == built.rules
    assert load_tables().terminals == built.terminals


@pytest.mark.parametrize("text", ["", "{", "{}", '{"rules": 1}', "[1]"])
def test_a_damaged_cache_is_built_again(tmp_path: Path, text: str) -> None:
    built = load_tables()
    (file,) = (tmp_path / "rlc").iterdir()
    file.write_text(text)
    load_tables.cache_clear()
    assert load_tables().terminals == built.terminals
    assert file.read_text() != text


def test_an_unwritable_cache_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rlc").write_text("a file where the folder should be")
    assert load_tables().rules
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    load_tables.cache_clear()
    assert load_tables().rules


def test_a_folder_others_can_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "rlc"
    folder.mkdir()
    folder.chmod(0o777)
    assert load_tables().rules
    assert not list(folder.iterdir())


def test_the_grammar_has_no_conflict_and_an_action_for_every_rule() -> None:
    makers = TreeBuilder(Source("", "")).makers
    for rule in build_tables(grammar_text()).rules:
        if rule.action and not rule.passes:
            assert rule.action in makers


def test_a_parse_from_the_cache_imports_no_heavy_module() -> None:
    load_tables()
    code = (
        "import sys; from rlc.lang.syntax.parser import parse; from rlc.lang.source import Source;"
        "from rlc.lang.read import read_source; from rlc.lang.render import render_human;"
        "parse(Source('x', 'env x = 1'));"
        "print({'lark', 'rich', 'cattrs', 'tinker', 'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
