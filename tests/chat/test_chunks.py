"""Prompts with images and sounds: as tokens and marks, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinker.types import EncodedTextChunk, ImageChunk, ModelInput

from rlc.chat.turns import ContractError, model_input, readable_text, split_chunks

pytestmark = pytest.mark.engine


def picture(name: str = "cat", tokens: int | None = 3) -> ImageChunk:
    return ImageChunk(data=name.encode(), format="png", expected_tokens=tokens)


TEXTS = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(
    lambda tokens: EncodedTextChunk(tokens=tokens)
)
PICTURES = st.builds(picture, st.sampled_from(["cat", "dog"]), st.integers(1, 3))


def joined(prompt: ModelInput) -> list[Any]:
    """The chunks of a prompt, texts in a row as one, and none that is empty."""
    chunks: list[Any] = []
    for chunk in prompt.chunks:
        if not chunk.length:
            continue
        if not isinstance(chunk, EncodedTextChunk):
            chunks.append(chunk)
        elif chunks and isinstance(chunks[-1], list):
            chunks[-1] += chunk.tokens
        else:
            chunks.append(list(chunk.tokens))
    return chunks


@given(st.lists(TEXTS | PICTURES, max_size=6))
def test_a_prompt_comes_back_as_it_was(chunks: list[Any]) -> None:
    prompt = ModelInput(chunks=chunks)
    tokens, found = split_chunks(prompt)
    assert len(tokens) == prompt.length
    assert all(-(2**31) <= token < 10 for token in tokens)
    assert joined(model_input(tokens, found)) == joined(prompt)


@given(st.lists(TEXTS | PICTURES, max_size=4), st.lists(TEXTS | PICTURES, max_size=4))
def test_a_prompt_that_goes_on_from_another_does_so_in_its_tokens(
    chunks: list[Any], more: list[Any]
) -> None:
    before, _ = split_chunks(ModelInput(chunks=chunks))
    after, found = split_chunks(ModelInput(chunks=[*chunks, *more]))
    assert after[: len(before)] == before
    assert joined(model_input(before, found)) == joined(ModelInput(chunks=chunks))


def test_other_pictures_have_other_marks() -> None:
    (cat, *_), _ = split_chunks(ModelInput(chunks=[picture("cat")]))
    (dog, *_), _ = split_chunks(ModelInput(chunks=[picture("dog")]))
    assert cat != dog


def test_people_are_shown_where_a_picture_was() -> None:
    class Letters:
        def decode(self, tokens: list[int]) -> str:
            return "".join("abc"[token] for token in tokens)

    prompt = ModelInput(chunks=[EncodedTextChunk(tokens=[0, 1]), picture(), picture("dog")])
    tokens, chunks = split_chunks(prompt)
    assert readable_text([*tokens, 2], chunks, Letters()) == "ab[image][image]c"


@pytest.mark.parametrize("tokens", [None, 0])
def test_a_picture_must_say_how_long_it_is(tokens: int | None) -> None:
    with pytest.raises(ContractError, match="an image of a prompt"):
        split_chunks(ModelInput(chunks=[picture(tokens=tokens)]))
