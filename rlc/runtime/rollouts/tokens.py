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


def begins_with(prompt: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether a prompt begins with some tokens. Most that do not differ in the last of them."""
    known = len(tokens)
    if known > len(prompt) or (known and prompt[known - 1] != tokens[-1]):
        return False
    return array(TOKEN, prompt[:known]) == array(TOKEN, tokens)


@define
class EpisodeTokens:
    """The tokens of an episode so far: the sequences that its prompts and replies make. What a
    prompt repeats of one of them is stored and counted once; where several conversations go on
    side by side, each has a sequence."""

    _sequences: list[array[int]] = field(factory=list, init=False)

    def with_prompt(self, prompt: Sequence[int]) -> int:
        """Return the length if this prompt came next."""
        continued = self._continued_by(prompt)
        repeated = 0 if continued is None else len(continued)
        return sum(map(len, self._sequences)) - repeated + len(prompt)

    def extend(self, prompt: Sequence[int], reply: Sequence[int]) -> TokenPrefix:
        """Add a prompt and the reply to it; return the prompt to keep."""
        whole = self._continued_by(prompt)
        if whole is None:
            whole = array(TOKEN, prompt)
            self._sequences.append(whole)
        else:
            whole.extend(prompt[len(whole) :])
        kept = TokenPrefix(whole, len(prompt))
        whole.extend(reply)
        return kept

    def _continued_by(self, prompt: Sequence[int]) -> array[int] | None:
        latest_first = reversed(self._sequences)
        return next((whole for whole in latest_first if begins_with(prompt, whole)), None)
