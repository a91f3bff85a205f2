"""Process rewards: what is read of them, and which token each belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from rlc.data.errors import DataError
from rlc.data.grading.steps import joined_steps, read_steps, step_rewards

WORDS = ["a", "bc", "def", " ", "\n", "ä", "字"]


@frozen
class Bytes:
    """A tokenizer whose tokens are bytes of texts; what is no text yet is a replacement."""

    pieces: Sequence[bytes]

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self.pieces[token] for token in tokens).decode("utf-8", errors="replace")


@st.composite
def replies(draw: st.DrawFn) -> tuple[Bytes, list[int], str, list[tuple[int, float]]]:
    """A reply after a thought, cut into tokens anywhere, also within a character."""
    text = "".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8)))
    thought = draw(st.sampled_from(["", "so: ", "字! "]))
    written = f"{thought}{text}".encode()
    cuts = draw(st.sets(st.integers(1, len(written) - 1), max_size=6)) if len(written) > 1 else ()
    bounds = [0, *sorted(cuts), len(written)]
    pieces = [written[a:b] for a, b in pairwise(bounds)]
    pieces.append(b"")  # the end of the turn
    ends = draw(st.lists(st.integers(1, len(text)), max_size=4))
    steps = [(end, draw(st.sampled_from([-1.0, 0.25, 2.0]))) for end in ends]
    return Bytes(pieces), list(range(len(pieces))), text, steps


@given(replies())
def test_a_reward_belongs_to_the_token_with_the_last_byte_of_its_part(
    reply: tuple[Bytes, list[int], str, list[tuple[int, float]]],
) -> None:
    tokenizer, tokens, text, steps = reply
    found = step_rewards(tokens, text, steps, tokenizer)
    begin = len(tokenizer.decode(tokens).encode()) - len(text.encode())
    expected, until = [0.0] * len(tokens), 0
    for place, piece in enumerate(tokenizer.pieces):
        after = until + len(piece)
        for end, reward in steps:
            last = begin + len(text[:end].encode())
            expected[place] += reward if until < last <= after else 0.0
        until = after
    assert found == expected


def test_a_text_that_was_not_sampled_is_said() -> None:
    tokenizer = Bytes([b"yes", b"!"])
    assert step_rewards([0, 1], "no", (), tokenizer) == [0.0, 0.0]
    with pytest.raises(DataError, match="the text 'no' is not in the reply that was sampled"):
        step_rewards([0, 1], "no", [(1, 1.0)], tokenizer)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": 1}, "`steps` is a dict, not a list of pairs"),
        ([3], "3 in `steps` is not a pair of an end and a reward"),
        ([(1, 2, 3)], "is not a pair"),
        ([(0, 1.0)], "0 in `steps`: where a part ends is a whole number, from 1"),
        ([(1.5, 1.0)], "1.5 in `steps`: where a part ends"),
        ([(True, 1.0)], "True in `steps`: where a part ends"),
        ([("2", 1.0)], "'2' in `steps`: where a part ends"),
        ([(5, 1.0)], "a part ends at 5 in `steps`, and the reply has 4 characters"),
        ([(4, float("nan"))], "nan in `steps` is not a finite number"),
        ([(4, None)], "None in `steps` is not a finite number"),
    ],
)
def test_what_is_no_process_reward_is_said(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said.replace("(", r"\(")):
        read_steps(given, 4)


def test_those_of_two_graders_stand_together() -> None:
    assert read_steps([[2.0, 1], (4, True)], 4) == [(2, 1.0), (4, 1.0)]
    assert joined_steps(None, None) is None
    assert joined_steps(None, []) == []
    assert joined_steps([(1, 1.0)], [(2, 0.5)]) == [(1, 1.0), (2, 0.5)]
