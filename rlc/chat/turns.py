"""A turn of an episode: what the policy is shown, what it replies, and what fails in between.

Prompts are tokens. Among them a negative number, the mark, stands for a chunk that is not text,
once for each position that it takes in the context. The mark is a hash of the chunk, so that
prompts are compared, counted and extended as those of text are; the chunks go beside the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from rlc.data import Message, TaskFacts
from rlc.errors import Error

if TYPE_CHECKING:
    from tinker import types


# Asked where a renderer is tried, or only what it writes around messages is wanted.
ANY_QUESTION: Message = {"role": "user", "content": "."}

Chunks = Mapping[int, Any]  # by mark: the SDK's chunks that are not text
NO_CHUNKS: Chunks = MappingProxyType({})
_MARKS = 2**31  # the negative numbers of 32 bits


class EnvError(Error):
    """A failure of an environment, in one sentence. Rollouts are counted by ``cause``."""

    cause = "environment"


class ContractError(EnvError):
    """An environment returned what :class:`Observation` does not allow."""

    cause = "contract"


@frozen
class Verdict:
    """What a judge said of an episode: its score, from 0 to 1, and why, as far as it says so."""

    judge: str
    score: float
    reason: str = ""


@frozen
class Observation:
    """What the policy sees next, and whether the episode is over.

    ``metrics`` are numbers about the previous action. A chat shows ``messages``, if there are any,
    in place of ``text``, which is for people. No reduction counts a ``reward`` of None.
    ``truncated``, with ``done``: it was cut off before an end of its own. ``about``, of a first
    observation, is kept with the rollout; ``fields`` are those of the task's row. The reward is the
    weighted sum of ``components``, weight and value by name, unless there are none. In a match
    ``move`` is the number of the next reply among those of all seats, and ``others`` are replies of
    opponents before it, with number and seat. ``steps`` are process rewards, of parts of the
    previous action: of each how many characters of the action's text there are up to its end, and
    its reward; None if there are no such rewards."""

    text: str
    reward: float | None = 0.0
    done: bool = False
    metrics: Mapping[str, float] = field(factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()
    truncated: bool = False
    about: TaskFacts | None = None
    components: Mapping[str, tuple[float, float]] = field(factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    fields: Mapping[str, Any] = field(factory=dict, repr=False)
    move: int | None = None
    others: tuple[tuple[int, int, str], ...] = ()
    steps: Sequence[tuple[int, float]] | None = None


@frozen
class Action:
    """A reply as the history parsed it. ``message`` is the renderer's parsed message, with tool
    calls; None without a chat. ``cut_off``: the reply is known not to be complete. ``tokens`` and
    their ``logprobs`` are those that were sampled, after the tokens of ``prompt``; none of a text
    that no model has written."""

    text: str
    message: Mapping[str, Any] | None = None
    cut_off: bool = False
    tokens: Sequence[int] = field(default=(), repr=False)
    logprobs: Sequence[float] = field(default=(), repr=False)
    prompt: Sequence[int] = field(default=(), repr=False)


def split_chunks(model_input: types.ModelInput) -> tuple[list[int], Chunks]:
    """Return a prompt as tokens with marks, and chunks. Raise ContractError without a length."""
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
