"""Prompts that share their tokens: a long episode is stored once, not once a turn."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from attrs import define, field, frozen

from rlc.chat import NO_CHUNKS, Chunks, chunks_from_json, chunks_to_json
from rlc.runtime.records import Turn
from rlc.runtime.scores import topk_from_json, topk_to_json

if TYPE_CHECKING:
    from tinker.types.topk_logprobs import TopkLogprobs

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


NOT_SAMPLED = -1


@frozen
class ReplySpan:
    """The tokens ``[begin, end)`` of a sequence, a reply to those before them.

    ``sequence_id`` is the service's name of it, ``turn`` numbers its turn in the episode from 0.
    """

    sequence_id: str
    begin: int
    end: int
    turn: int


@define
class TokenSequence:
    """Consecutive tokens, with the marks of ``chunks``.

    ``turns`` has the turn that each token was sampled in; -1 if it was not sampled.
    ``topk`` and ``replies`` are by turn; these are not written to files.
    """

    tokens: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    turns: list[int] = field(factory=list)
    chunks: Chunks = NO_CHUNKS
    topk: dict[int, TopkLogprobs] = field(factory=dict, eq=False)
    replies: dict[int, ReplySpan] = field(factory=dict, eq=False)

    def append(self, tokens: Sequence[int], logprobs: Sequence[float], turn: int) -> None:
        self.tokens.extend(tokens)
        self.logprobs.extend(logprobs)
        self.turns.extend([turn] * len(tokens))

    def written(self) -> dict[str, Any]:
        """Return the sequence as JSON data."""
        topk = {str(turn): topk_to_json(kept) for turn, kept in self.topk.items()}
        return {
            "tokens": self.tokens,
            "logprobs": self.logprobs,
            "turns": self.turns,
            **({"chunks": chunks_to_json(self.chunks)} if self.chunks else {}),
            **({"likeliest": topk} if topk else {}),
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> TokenSequence:
        """Return a sequence from the data that :meth:`written` returned."""
        chunks = chunks_from_json(record["chunks"]) if "chunks" in record else NO_CHUNKS
        written = record.get("likeliest", {})
        topk = {int(turn): topk_from_json(kept) for turn, kept in written.items()}
        return cls(record["tokens"], record["logprobs"], record["turns"], chunks, topk)


def merged_sequences(turns: Sequence[Turn]) -> list[TokenSequence]:
    """Return the sequences of an episode; a turn that extends all tokens of one shares it.

    Conversations that go on side by side are sequences of their own. What they have in common is
    sampled in the first of them, and context in the others.
    """
    sequences, lasts = list[TokenSequence](), list[Sequence[int]]()
    for index, turn in enumerate(turns):
        at = _extended(turn, sequences, lasts)
        if at is None:
            at = len(sequences)
            sequences.append(TokenSequence())
            lasts.append(turn.prompt)
        current, lasts[at] = sequences[at], turn.prompt
        fresh = turn.prompt[len(current.tokens) :]
        current.append(fresh, [0.0] * len(fresh), NOT_SAMPLED)
        begin = len(current.tokens)
        current.append(turn.tokens, turn.logprobs, index)
        current.replies[index] = ReplySpan(turn.sequence_id, begin, len(current.tokens), index)
        current.chunks = turn.chunks
        if turn.topk is not None:
            current.topk[index] = turn.topk
    return [sequence for sequence in sequences if sequence.tokens]


def _extended(
    turn: Turn, sequences: Sequence[TokenSequence], lasts: Sequence[Sequence[int]]
) -> int | None:
    """The latest sequence that a turn's prompt extends; ``lasts`` are their last prompts."""
    for at in range(len(sequences) - 1, -1, -1):
        known = is_continuation(turn.prompt, lasts[at])
        if known or begins_with(turn.prompt, sequences[at].tokens):
            return at
    return None
