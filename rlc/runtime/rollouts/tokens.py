"""Tokens of episodes: prompts that share a prefix, sequences, and their scores by other models."""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
from attrs import astuple, define, field, frozen

from rlc.algo import top_k_shares
from rlc.chat import NO_CHUNKS, Chunks, chunks_from_json, chunks_to_json
from rlc.runtime.records import Turn

if TYPE_CHECKING:
    from tinker.types.topk_logprobs import TopkLogprobs


FloatArray = npt.NDArray[np.float64]


def topk_to_json(topk: TopkLogprobs) -> dict[str, Any]:
    """Return the top-k tokens of some places as JSON data."""
    return {
        "k": topk.token_ids.shape[1],
        "tokens": b64encode(topk.token_ids.astype("<i4").tobytes()).decode(),
        "logprobs": b64encode(topk.logprobs.astype("<f4").tobytes()).decode(),
    }


def topk_from_json(record: Mapping[str, Any]) -> TopkLogprobs:
    """Return top-k tokens from the data of :func:`topk_to_json`."""
    from tinker.types.topk_logprobs import TopkLogprobs

    shape = -1, record["k"]
    return TopkLogprobs(
        np.frombuffer(b64decode(record["tokens"]), dtype="<i4").reshape(shape),
        np.frombuffer(b64decode(record["logprobs"]), dtype="<f4").reshape(shape),
    )


def first_of(topk: TopkLogprobs | None, k: int) -> TopkLogprobs | None:
    """Return the first ``k`` tokens of each place; None if there are none."""
    if topk is None or not k:
        return None
    return type(topk)(topk.token_ids[:, :k], topk.logprobs[:, :k])


@frozen(eq=False)
class Scores:
    """The scores of the tokens of a sequence after the first by another model.

    ``logprobs_T``: of each token; NaN where unknown. ``tokens_TK``: the K most likely in its place,
    none where K is 0; ``shares_TK``: their shares of the probability ``mass_T`` that they have
    together, all 0 where unknown.
    """

    logprobs_T: FloatArray
    tokens_TK: npt.NDArray[np.int64]
    shares_TK: FloatArray
    mass_T: FloatArray

    @classmethod
    def of_tokens(cls, logprobs_T: npt.ArrayLike) -> Scores:
        """Return scores without top-k tokens."""
        logprobs = np.asarray(logprobs_T, dtype=np.float64)
        none = np.zeros((len(logprobs), 0))
        return cls(logprobs, none.astype(np.int64), none, np.zeros(len(logprobs)))

    @classmethod
    def with_topk(cls, logprobs_T: npt.ArrayLike, topk: TopkLogprobs, vocabulary: int) -> Scores:
        """Return scores with the top-k tokens of the first positions, the first token included."""
        later = type(topk)(topk.token_ids[1:], topk.logprobs[1:])
        return cls.at_places(logprobs_T, [(np.arange(len(later.token_ids)), later)], vocabulary)

    @classmethod
    def at_places(
        cls,
        logprobs_T: npt.ArrayLike,
        known: Sequence[tuple[npt.NDArray[np.int64], TopkLogprobs]],
        vocabulary: int,
    ) -> Scores:
        """Return scores with the top-k tokens that are ``known`` of some positions after the first.

        Tokens beyond the ``vocabulary`` of the tokenizer are left out: models that share one may
        be padded to different sizes.
        """
        logprobs = np.asarray(logprobs_T, dtype=np.float64)
        shape = len(logprobs), max(topk.token_ids.shape[1] for _, topk in known)
        tokens_TK, best_TK = np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf)
        for places, topk in known:
            width = topk.token_ids.shape[1]
            tokens_TK[places, :width], best_TK[places, :width] = topk.token_ids, topk.logprobs
        outside_TK = tokens_TK >= vocabulary
        tokens_TK[outside_TK], best_TK[outside_TK] = 0, -np.inf
        return cls(logprobs, tokens_TK, *top_k_shares(best_TK))

    def at(self, places: npt.NDArray[np.int64] | slice) -> Scores:
        """Return the scores of some positions."""
        return Scores(*(array[places] for array in astuple(self, recurse=False)))

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """Return the scores of several sequences in a row, then those of an unknown position."""
        rows = [*zip(*(astuple(part, recurse=False) for part in parts), strict=True)]
        unknown = [np.zeros_like(row[0], shape=(1, *row[0].shape[1:])) for row in rows]
        return cls(*(np.concatenate([*row, last]) for row, last in zip(rows, unknown, strict=True)))


TOKEN = "i"  # 32 bits hold every vocabulary


class TokenPrefix(Sequence[int]):
    """The first ``end`` tokens of a sequence that may grow. Its slices are lists."""

    __slots__ = ("_end", "_whole")

    def __init__(self, whole: array[int], end: int) -> None:
        self._whole, self._end = whole, end

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
    """Return whether a prompt is known to begin with an earlier prompt and the reply to it."""
    known = isinstance(prompt, TokenPrefix) and isinstance(before, TokenPrefix)
    return known and prompt._whole is before._whole


def begins_with(prompt: Sequence[int], tokens: Sequence[int]) -> bool:
    """Return whether a prompt begins with some tokens."""
    known = len(tokens)
    if known > len(prompt) or (known and prompt[known - 1] != tokens[-1]):  # most differ there
        return False
    return array(TOKEN, prompt[:known]) == array(TOKEN, tokens)


@define
class EpisodeTokens:
    """The tokens of an episode so far, a sequence for each of its parallel conversations. What a
    prompt repeats of one of them is stored and counted once."""

    _sequences: list[array[int]] = field(factory=list, init=False)

    def with_prompt(self, prompt: Sequence[int]) -> int:
        """Return the number of tokens once this prompt is added."""
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
    """The tokens ``[begin, end)`` of a sequence, a reply; ``turn`` is its number from 0."""

    sequence_id: str
    begin: int
    end: int
    turn: int


@define
class TokenSequence:
    """Consecutive tokens, with the marks of ``chunks``. ``turns`` has the turn that each token was
    sampled in, -1 if it was not; ``topk`` and ``replies``, which is not written, are by turn."""

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
        """Return a sequence from the data of :meth:`written`."""
        chunks = chunks_from_json(record["chunks"]) if "chunks" in record else NO_CHUNKS
        written = record.get("likeliest", {})
        topk = {int(turn): topk_from_json(kept) for turn, kept in written.items()}
        return cls(record["tokens"], record["logprobs"], record["turns"], chunks, topk)


def merged_sequences(turns: Sequence[Turn]) -> list[TokenSequence]:
    """Return the sequences of an episode; a turn that extends all tokens of one shares it.

    Parallel conversations are different sequences. What they have in common is sampled in the first
    of them, and context in the others.
    """
    sequences, prompts = list[TokenSequence](), list[Sequence[int]]()  # each with its last prompt
    for index, turn in enumerate(turns):
        for at in range(len(sequences) - 1, -1, -1):
            known = is_continuation(turn.prompt, prompts[at])
            if known or begins_with(turn.prompt, sequences[at].tokens):
                break
        else:
            at = len(sequences)
            sequences.append(TokenSequence())
            prompts.append(turn.prompt)
        current, prompts[at] = sequences[at], turn.prompt
        fresh = turn.prompt[len(current.tokens) :]
        current.append(fresh, [0.0] * len(fresh), NOT_SAMPLED)
        begin = len(current.tokens)
        current.append(turn.tokens, turn.logprobs, index)
        current.replies[index] = ReplySpan(turn.sequence_id, begin, len(current.tokens), index)
        current.chunks = turn.chunks
        if turn.topk is not None:
            current.topk[index] = turn.topk
    return [sequence for sequence in sequences if sequence.tokens]
