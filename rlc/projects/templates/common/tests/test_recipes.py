"""Every recipe of this project compiles, and its data and functions fit it."""

from pathlib import Path

import pytest

import rlc

RECIPES = sorted(Path(__file__).parents[1].glob("*.rl"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_nothing_is_wrong_with_a_recipe(path: Path) -> None:
    found = rlc.load(path).check(imports=True)
    assert [f"{item.code}: {item.message}" for item in found] == []
