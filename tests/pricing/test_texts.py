"""Tokens of the rows that a recipe names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlc.pricing.shapes import tokenizer_at_hand
from rlc.service import tiny

TEXT = "你好，世界！" * 20  # of which a character is several tokens


@pytest.mark.parametrize("name", ["tiny", "folder"])
def test_a_tokenizer_at_hand_counts(name: str, tmp_path: Path) -> None:
    """That of a folder too, so that the high case of its rows is a bound."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(Path(tiny.path()) / "tokenizer.json", folder)
    tokenizer = tokenizer_at_hand("tiny" if name == "tiny" else str(folder))
    assert len(tokenizer.encode(TEXT).ids) > len(TEXT)


@pytest.mark.parametrize("content", [None, json.dumps({"no": "tokenizer"}), "{"])
def test_rows_are_measured_by_characters_without_one(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    assert tokenizer_at_hand(str(tmp_path)) is None
