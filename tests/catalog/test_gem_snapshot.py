"""The snapshot says of GEM what the installed GEM does."""

from __future__ import annotations

import pytest

pytest.importorskip("gem")

from rlc.catalog import snapshot
from rlc.catalog.environments import gem_facts, gem_ids, gem_snapshot

MEASURED = ("game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy", "rg:spell_backward")


def test_ids_arguments_and_signatures_are_those_of_the_library() -> None:
    stored = gem_snapshot()
    installed = snapshot.registry()
    without_lengths = {
        env_id: {key: value for key, value in record.items() if key != "chars"}
        for env_id, record in stored["environments"].items()
    }
    assert {**stored, "environments": without_lengths} == installed
    assert len(gem_ids()) == 172


@pytest.mark.parametrize("env_id", MEASURED)
def test_prompt_lengths_are_those_of_the_environment(env_id: str) -> None:
    chars = snapshot.probe(env_id)
    assert chars is not None
    assert gem_facts(env_id)["chars"]["prompt"] == chars["prompt"]


def test_an_environment_that_fails_has_no_length() -> None:
    assert snapshot.probe("rg:composite") is None
    assert gem_facts("rg:composite")["chars"] is None


def test_the_file_is_as_the_script_writes_it() -> None:
    assert snapshot.render(gem_snapshot()) == snapshot.PATH.read_text(encoding="utf-8")
