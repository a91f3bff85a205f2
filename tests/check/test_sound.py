"""No false alarm: recipes that are unusual and sound, each with a comment that says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlc.catalog.index import BUILTINS
from rlc.cli.main import main
from rlc.compile.recipe import load

RECIPES = sorted(Path(__file__).with_name("sound").glob("*.rl"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_nothing_is_found_where_nothing_is_wrong(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(path)]) == 0  # with the data that it names
    assert capsys.readouterr().out == "1 recipe checked, no findings\n"
    assert load(path).plan is not None


def test_they_are_many_and_each_says_why_it_is_sound() -> None:
    assert len(RECIPES) >= 30
    assert all(re.match(r"# \w.+\n", text) for text in TEXTS.values())


def test_every_builtin_of_the_catalogue_is_in_one_of_them() -> None:
    text = "\n".join(TEXTS.values())
    written = set(re.findall(r"[\w.]+(?=\()", text)) | set(re.findall(r"\b\w+\b", text))
    assert {builtin.name for builtin in BUILTINS} - written == set()
