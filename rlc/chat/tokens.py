"""Prompts as tokens, also those with images and sounds, and a tokenizer with a cache.

Among the tokens a negative number, the mark, stands for a chunk that is not text, once for each
position that it takes in the context. The mark is a hash of the chunk, so that prompts are
compared, counted and extended as those of text are; the chunks go beside the tokens, by mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlc.chat.turns import ContractError

if TYPE_CHECKING:
    from tinker import types


_LONGEST = 4_096  # characters of a text that is cached
_MOST = 2_048  # texts in the cache


class CachingTokenizer:
    """Any tokenizer, with a cache of recent texts: renderers encode pieces of messages, most of
    which are the same in every turn, and for all members of a group."""

    def __init__(self, tokenizer: Any) -> None:
        self.latest = ""  # the text that was encoded last
        self._tokenizer = tokenizer
        self._cached = lru_cache(maxsize=_MOST)(self._encoded)

    def encode(self, text: str, **settings: Any) -> list[int]:
        self.latest = text
        if len(text) > _LONGEST:
            tokens: list[int] = self._tokenizer.encode(text, **settings)
            return tokens
        return list(self._cached(text, **settings))

    def _encoded(self, text: str, **settings: Any) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, **settings))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up when the object is copied
            raise AttributeError(name)
        return getattr(self._tokenizer, name)


Chunks = Mapping[int, Any]  # by mark: the SDK's chunks that are not text
NO_CHUNKS: Chunks = MappingProxyType({})
_MARKS = 2**31  # the negative numbers of 32 bits


def split_chunks(model_input: types.ModelInput) -> tuple[list[int], Chunks]:
    """Return a prompt as tokens and marks, and the chunks by mark. Raise ContractError for a chunk
    that does not say how many positions it takes."""
    tokens: list[int] = []
    chunks: dict[int, Any] = {}
    for chunk in model_input.chunks:
        if chunk.type == "encoded_text":
            tokens += chunk.tokens
        else:
            digest = blake2b(chunk.model_dump_json().encode(), digest_size=8).digest()
            mark = -1 - int.from_bytes(digest) % _MARKS
            tokens += [mark] * _length(chunk)
            chunks[mark] = chunk
    return tokens, chunks


def model_input(tokens: Sequence[int], chunks: Chunks) -> types.ModelInput:
    """Return the prompt of these tokens and chunks: the inverse of :func:`split_chunks`."""
    from tinker import types

    if not chunks:
        return types.ModelInput.from_ints(list(tokens))
    made: list[Any] = []
    for mark, run in groupby(tokens, _mark_or_text):
        if mark is None:
            made.append(types.EncodedTextChunk(tokens=list(run)))
        else:  # the same chunk may occur twice in a row
            made += [chunks[mark]] * (len(list(run)) // chunks[mark].length)
    return types.ModelInput(chunks=made)


def readable_text(tokens: Sequence[int], chunks: Chunks, tokenizer: Any) -> str:
    """Return tokens as text for people, in which the name of its kind stands for a chunk."""
    if not chunks:
        return str(tokenizer.decode(list(tokens)))
    return "".join(
        tokenizer.decode(list(run)) if mark is None else f"[{chunks[mark].type}]"
        for mark, run in groupby(tokens, _mark_or_text)
    )


def chunks_to_json(chunks: Chunks) -> dict[str, Any]:
    return {str(mark): chunk.model_dump(mode="json") for mark, chunk in chunks.items()}


def chunks_from_json(record: Mapping[str, Any]) -> Chunks:
    """Return the chunks that :func:`chunks_to_json` wrote."""
    from tinker import types

    read = types.ModelInput.model_validate({"chunks": list(record.values())}).chunks
    return dict(zip(map(int, record), read, strict=True))


def _mark_or_text(token: int) -> int | None:
    return token if token < 0 else None


def _length(chunk: Any) -> int:
    try:
        length = int(chunk.length)
    except ValueError as error:  # the SDK's, for an image
        raise ContractError(f"an {chunk.type} of a prompt has no `expected_tokens`") from error
    if length < 1:
        raise ContractError(f"an {chunk.type} of a prompt takes {length} positions")
    return length
