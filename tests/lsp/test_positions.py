"""Places in the units of the protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from rlc.lang.source import Source
from rlc.lsp.protocol import Positions

BYTES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
texts = st.text(st.sampled_from('ab é€𝔸😀\n\u2028\x0c#"'), max_size=40)


@given(texts, st.sampled_from(sorted(BYTES)))
def test_positions_and_offsets_are_each_others_inverse(text: str, encoding: str) -> None:
    positions = Positions(Source("a.rl", text), encoding)
    codec, size = BYTES[encoding]
    for offset in range(len(text) + 1):
        before = text[:offset]
        line = before.rpartition("\n")[2]
        units = len(line.encode(codec)) // size
        position = positions.at(offset)
        assert (position.line, position.character) == (before.count("\n"), units)
        assert positions.offset(position) == offset


@pytest.mark.parametrize(
    ("line", "character", "offset"),
    [(0, 1, 0), (0, 2, 1), (0, 99, 2), (1, 1, 4), (9, 0, 5)],  # the first is inside of a character
)
def test_a_place_that_is_none_is_the_nearest_before(line: int, character: int, offset: int) -> None:
    positions = Positions(Source("a.rl", "😀é\nab"))
    assert positions.offset(types.Position(line, character)) == offset
