"""The file of tokens: written a step at a time, read while it is written, and never half."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_support import plan

from rlc.runtime.journal.episodes import (
    TOKENS_FILE,
    EpisodeKey,
    EpisodeTokens,
    SequenceTokens,
    TokenIndex,
    append_tokens,
    first_groups,
    keep_blocks,
)
from rlc.runtime.journal.folder import RunFolder

FLOATS = st.floats(width=32, allow_nan=False)


@st.composite
def sequences(draw: st.DrawFn) -> SequenceTokens:
    tokens = draw(st.lists(st.integers(-3, 2**31 - 1), min_size=2, max_size=12))
    cuts = sorted(draw(st.sets(st.integers(1, len(tokens)), max_size=4)))
    spans = [(turn, *ends) for turn, ends in enumerate(zip(cuts[::2], cuts[1::2], strict=False))]
    count = sum(end - begin for _, begin, end in spans)
    row = st.lists(FLOATS, min_size=count, max_size=count)
    return SequenceTokens(
        tokens, spans, draw(row), draw(row), draw(row), weight=draw(st.none() | FLOATS)
    )


def episode(task: int, member: int = 0, **changes: str | int) -> EpisodeTokens:
    key = EpisodeKey("guess", task, member, **changes)  # type: ignore[arg-type]
    sequence = SequenceTokens([5, 6, 7], [(0, 1, 3)], [-1.0, -2.0], [-1.5, -2.5], [0.5, 0.5], 1.0)
    return EpisodeTokens(key, [sequence])


def content(one: SequenceTokens) -> list[list[float]]:
    rows = (one.tokens, one.logprobs_S, one.trainer_S, one.advantages_S)
    return [list(row) for row in rows]


@given(found=st.lists(st.lists(sequences(), min_size=1, max_size=3), min_size=1, max_size=4))
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, found: list[list[SequenceTokens]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    keys = [EpisodeKey("é", task, 1, "judge", task) for task in range(len(found))]
    episodes = [EpisodeTokens(key, mine) for key, mine in zip(keys, found, strict=True)]
    append_tokens(folder, "main", 3, episodes)
    index = TokenIndex(folder)
    for key, mine in zip(keys, found, strict=True):
        read = index.episode("main", 3, key)
        assert [content(one) for one in read] == [content(one) for one in mine]
        assert [(one.spans, one.weight) for one in read] == [(o.spans, o.weight) for o in mine]
    assert index.episode("main", 3, EpisodeKey("é", 0, 2, "judge")) == []
    assert not index.has("main", 2)


def test_an_index_reads_on_and_begins_anew_when_the_file_is_another_one(tmp_path: Path) -> None:
    index = TokenIndex(tmp_path)
    assert index.episode("main", 1, EpisodeKey("guess", 0, 0)) == []
    for step in (1, 2):
        append_tokens(tmp_path, "main", step, [episode(step)])
        assert index.episode("main", step, EpisodeKey("guess", step, 0))
    keep_blocks(tmp_path, {("main", 1)})
    assert index.has("main", 1)
    assert not index.has("main", 2)
    append_tokens(tmp_path, "main", 2, [episode(9)])
    assert index.episode("main", 2, EpisodeKey("guess", 9, 0))


def test_a_block_that_is_not_whole_is_not_there(tmp_path: Path) -> None:
    append_tokens(tmp_path, "main", 1, [episode(1)])
    file = tmp_path / TOKENS_FILE
    first = file.read_bytes()
    append_tokens(tmp_path, "main", 2, [episode(2)])
    whole = file.read_bytes()
    for size in range(len(first), len(whole)):
        file.write_bytes(whole[:size])
        index = TokenIndex(tmp_path)
        assert index.has("main", 1)
        assert not index.has("main", 2)
        keep_blocks(tmp_path, {("main", 1), ("main", 2)})
        assert file.read_bytes() == first


@pytest.mark.parametrize("place", [-1, -30])
def test_damaged_numbers_are_not_shown(tmp_path: Path, place: int) -> None:
    append_tokens(tmp_path, "main", 1, [episode(1)])
    file = tmp_path / TOKENS_FILE
    changed = bytearray(file.read_bytes())
    changed[place] ^= 1
    file.write_bytes(changed)
    assert TokenIndex(tmp_path).episode("main", 1, EpisodeKey("guess", 1, 0)) == []


def test_a_resume_leaves_the_tokens_of_journalled_steps_only(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", plan("quickstart"))
    for step in (1, 2):  # the second is written, but was never journalled
        append_tokens(folder.path, "main", step, [episode(step)])
    folder.journal.start_step("main", 1)
    folder.journal.finish_step("main", 1, {}, {"stage": "main", "step": 1})
    folder.journal.add_checkpoint("main", 1, "path")
    folder.rewind()
    folder.close()
    index = TokenIndex(tmp_path / "run")
    assert index.has("main", 1)
    assert not index.has("main", 2)


def test_groups_are_kept_whole() -> None:
    played = [episode(task, member) for task in range(3) for member in range(4)]
    for most, kept in ((None, 12), (0, 0), (2, 4), (7, 4), (8, 8), (11, 8), (12, 12)):
        assert first_groups(played, most) == played[:kept]


def test_how_many_are_kept_is_remembered(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", plan("quickstart"))
    assert folder.kept_tokens == 64
    for most in (None, 0, 3):
        folder.keep_tokens(most)
        assert folder.kept_tokens == most
    folder.close()


def test_numbers_are_32_bits_wide() -> None:
    assert array("i").itemsize == array("f").itemsize == 4
