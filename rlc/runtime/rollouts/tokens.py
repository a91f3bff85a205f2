"""Prompts that share their tokens: a long episode is stored once, not once a turn."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

from attrs import define, field

TOKEN = "i"  # 32 bits hold every vocabulary


class TokenPrefix(Sequence[int]):
    """The first ``end`` tokens of a sequence that may grow. Its slices are lists."""

    __slots__ = ("_end", "_whole")

    def __init__(self, whole: array[int], end: int) -> None:
        self._whole = whole
        self._end = end

    def __len__(self) -> int:
        return self._end

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        if isinstance(at, slice):
            return self._whole[slice(*at.indices(self._end))].tolist()
        return self._whole[range(self._end)[at]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._whole[: self._end])

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TokenPrefix({self[:]})"


def is_continuation(prompt: Any, before: Any) -> bool:
    """Whether a prompt is known to begin with an earlier prompt and the reply to it."""
    known = isinstance(prompt, TokenPrefix) and isinstance(before, TokenPrefix)
    return known and prompt._whole is before._whole


@define
class EpisodeTokens:
    """The tokens of an episode so far; those that a prompt repeats are stored and counted once."""

    before: int = 0  # in sequences that later prompts did not continue
    _current: array[int] = field(factory=lambda: array(TOKEN), init=False)

    def with_prompt(self, prompt: Sequence[int]) -> int:
        """Return the length if this prompt came next."""
        repeated = len(self._current) if self._is_continued_by(prompt) else 0
        return self.before + len(self._current) - repeated + len(prompt)

    def extend(self, prompt: Sequence[int], reply: Sequence[int]) -> TokenPrefix:
        """Add a prompt and the reply to it; return the prompt to keep."""
        if self._is_continued_by(prompt):
            self._current.extend(prompt[len(self._current) :])
        else:
            self.before += len(self._current)
            self._current = array(TOKEN, prompt)
        kept = TokenPrefix(self._current, len(prompt))
        self._current.extend(reply)
        return kept

    def _is_continued_by(self, prompt: Sequence[int]) -> bool:
        known = len(self._current)
        return known <= len(prompt) and array(TOKEN, prompt[:known]) == self._current
