"""Sequences to train on, as the service takes them"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tinker import types

from rlc.emit.pieces.job import SEED, STAGE
from rlc.emit.pieces.prompts import model_input
from rlc.emit.pieces.records import Episode, Turn
from rlc.seeds import derive_seed

Array = np.ndarray[Any, Any]


@dataclass
class Trained:
    """A sequence: its tokens, and for each after the first the sampler's logprob, the advantage,
    and whether it was sampled and is trained on."""

    tokens: list[Any]
    logprobs: Array
    advantages: Array
    mask: Array
    turns: Array  # in which it was sampled; -1: in none
    episode: Episode
    ref: Array | None = None  # the logprob under a model that scores it

    @property
    def count(self) -> int:
        return int(self.mask.sum())


def joined(turns: Sequence[Turn]) -> list[tuple[list[Any], list[float], list[int]]]:
    """Tokens, logprobs, and the turn that each was sampled in (-1: in none): turns whose prompts
    extend the tokens before them share a sequence."""
    made: list[tuple[list[Any], list[float], list[int]]] = []
    for index, turn in enumerate(turns):
        whole = next((one for one in made[::-1] if turn.prompt[: len(one[0])] == one[0]), None)
        if whole is None:
            made.append(whole := ([], [], []))
        tokens, logprobs, places = whole
        fresh = turn.prompt[len(tokens) :]
        tokens += fresh + turn.tokens
        logprobs += [0.0] * len(fresh) + turn.logprobs
        places += [-1] * len(fresh) + [index] * len(turn.tokens)
    return made


def sequences(episode: Episode, value: Any, chosen: Any = None) -> list[Trained]:
    """The sequences of an episode with its advantage, or those of its turns; of which those that
    are ``chosen`` are trained on, or all."""
    made, values = [], np.resize(value, len(episode.turns))
    for tokens, logprobs, turns in joined(episode.turns):
        turn = np.array(turns[1:])
        mask = (turn >= 0) & (True if chosen is None else chosen[turn])
        sampled = np.where(mask, np.array(logprobs[1:]), 0.0)
        advantages = np.where(mask, values[turn], 0.0)
        made.append(Trained(tokens, sampled, advantages, mask, turn, episode))
    return [one for one in made if one.mask.any()]


def some_turns(episodes: Sequence[Episode], count: int, step: int) -> list[Array]:
    """A random choice of so many turns is trained on."""
    turns = [len(episode.turns) for episode in episodes]
    chosen = np.ones(sum(turns), dtype=bool)
    if sum(turns) > count:
        generator = np.random.default_rng(derive_seed(SEED, "subsample", STAGE, step))
        chosen[generator.permutation(sum(turns))[count:]] = False
    return np.split(chosen, np.cumsum(turns)[:-1])


def datum(tokens: Sequence[Any], **floats: Any) -> types.Datum:
    """A sequence with what its loss reads of each token after the first; images are no targets."""
    targets = np.array([one if isinstance(one, int) else 0 for one in tokens[1:]], dtype=np.int64)
    arrays = {name: np.asarray(array, dtype=np.float32) for name, array in floats.items()}
    read: dict[str, Array] = {"target_tokens": targets, **arrays}
    return types.Datum(
        model_input=model_input(tokens[:-1]),
        loss_fn_inputs={name: types.TensorData.from_numpy(array) for name, array in read.items()},
    )


def own_inputs(one: Trained, known: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What a loss of one's own reads, of what is known of each token. Tokens that were not sampled
    count nowhere, and have the values of the first that was."""
    first = int(np.argmax(one.mask))
    read = {name: np.where(one.mask, array, array[first]) for name, array in known.items()}
    read |= {"mask": one.mask, "first": np.arange(len(one.mask)) == first}
    return {name: array for name, array in read.items() if name in names}


async def anchored(training: Any, made: list[Trained]) -> list[Trained]:
    """The sequences with the trainer's own logprobs where nothing is trained on. The service pulls
    every token to the logprobs that it is given; these have no gradient."""
    plain = [datum(one.tokens, weights=one.advantages) for one in made]
    output = await training.forward(plain, "cross_entropy")
    for one, row in zip(made, output.loss_fn_outputs, strict=True):
        one.logprobs = np.where(one.mask, one.logprobs, row["logprobs"].to_numpy())
    return made


Reply = tuple[str, int, int]  # its sampled sequence, and its tokens in that to train on


def trimmed(one: Trained) -> Trained:
    """A sequence up to the last token that is trained on."""
    end = int(np.flatnonzero(one.mask)[-1]) + 1
    names = ("logprobs", "advantages", "mask", "turns")
    arrays: dict[str, Any] = {name: getattr(one, name)[:end] for name in names}
    return replace(one, tokens=one.tokens[: end + 1], **arrays)


def with_replies(made: types.Datum, one: Trained) -> types.Datum:
    """The datum, with the sampled sequence behind every token."""
    replies = list[Reply]()
    for turn in dict.fromkeys(one.turns[one.mask].tolist()):
        at = np.flatnonzero(one.turns == turn) + 1  # target t is token t + 1
        replies.append((one.episode.turns[turn].sequence_id, int(at[0]), int(at[-1]) + 1))
    length = len(one.tokens) - 1
    return made.with_provenance(spans(replies, 0, length), spans(replies, 1, length + 1))


def spans(replies: Sequence[Reply], first: int, end: int) -> list[Any]:
    """Where the tokens from ``first`` to ``end`` come from: a reply was sampled, and what lies
    before it was in the prompt that it answers."""
    made: list[Any] = []
    for name, begin, stop in replies:
        start, stop = max(begin, first), min(stop, end)
        which: dict[str, Any] = {"sequence_id": name}
        if start > first:
            made.append(types.PromptProvenanceSpan(**which, offset=first, length=start - first))
        if stop > start:
            span = which | {"offset": start - begin, "length": stop - start}
            made.append(types.SampledProvenanceSpan(**span))
        first = stop
    return made
