"""Regressions are planted where the recipes still have what they change, and tests see them."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest

from tools.regressions import RECIPES, by_hand, drawn, outcome

pytestmark = pytest.mark.plain


def test_a_mistake_is_seen_and_what_changes_nothing_is_none(tmp_path: Path) -> None:
    shutil.copytree(RECIPES, tmp_path, dirs_exist_ok=True)
    every = {(one.file, one.old): one for one in by_hand()}
    letters = every["letters.py", "if len(word) > 1 else 0.0"]
    assert outcome(letters, tmp_path) == "seen"
    assert outcome(every["quickstart.rl", "group_size = 8"], tmp_path) == "seen"
    same = [one for one in islice(drawn(1), 200) if one.file == "letters.py"]
    assert same
    assert (tmp_path / "letters.py").read_text() == (RECIPES / "letters.py").read_text()
