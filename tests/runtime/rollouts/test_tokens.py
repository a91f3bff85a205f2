"""Prompts that share their tokens, and computing that leaves the event loop free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.runtime.records import Turn
from rlc.runtime.rollouts.tokens import (
    EpisodeTokens,
    TokenPrefix,
    is_continuation,
    merged_sequences,
)

tokens = st.lists(st.integers(0, 3), max_size=5)
turns = st.lists(st.tuples(st.booleans(), tokens, tokens), max_size=6)


@given(turns)
def test_shared_prompts_say_what_copies_would(
    played: list[tuple[bool, list[int], list[int]]],
) -> None:
    """Prompts go on from the turn before, or start over."""
    growing, last = EpisodeTokens(), list[int]()
    copied, shared = list[Turn](), list[Turn]()
    for starts_over, said, reply in played:
        prompt = said if starts_over else last + said
        expected = growing.with_prompt(prompt) + len(reply)
        kept = growing.extend(prompt, reply)
        assert growing.with_prompt(prompt + reply) == expected
        last = prompt + reply
        for one, into in ((prompt, copied), (kept, shared)):
            into.append(Turn(one, reply, [-1.0] * len(reply), "", "", 0.0, "stop"))
    assert [list(turn.prompt) for turn in shared] == [turn.prompt for turn in copied]
    assert merged_sequences(shared) == merged_sequences(copied)


def test_a_prefix_is_a_sequence_like_any_other() -> None:
    growing = EpisodeTokens()
    first, second = growing.extend([1, 2], [3]), growing.extend([1, 2, 3, 4], [5])
    assert (len(first), first[-1], first[:], second[2:], second[1:9]) == (
        2,
        2,
        [1, 2],
        [3, 4],
        [2, 3, 4],
    )
    assert first == [1, 2] != second
    assert {hash(first)} == {hash(growing.extend([1, 2], []))}
    assert is_continuation(second, first)
    assert not is_continuation(second, [1, 2])
    with pytest.raises(IndexError):
        first[2]  # the tokens after it are not its own
    assert isinstance(first, TokenPrefix)
