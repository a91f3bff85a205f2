"""A tokenizer that does not encode the same text twice."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_LONGEST = 4_096  # characters of a text that is cached
_MOST = 2_048  # texts in the cache


class CachingTokenizer:
    """Any tokenizer, with a cache of recently encoded texts.

    A renderer encodes each piece of a message by itself; most pieces are the same in every turn,
    and the members of a group are shown the same text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.latest = ""  # the text that was encoded last
        self._tokenizer = tokenizer
        self._cached = lru_cache(maxsize=_MOST)(self._encoded)

    def encode(self, text: str, **settings: Any) -> list[int]:
        """Encode as the tokenizer does."""
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
