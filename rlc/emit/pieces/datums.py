"""Sequences to train on, as the service takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tinker import types

from rlc.emit.pieces.records import Episode
from rlc.emit.pieces.seeds import stream

Array = np.ndarray[Any, Any]


@dataclass
class Trained:
    """A sequence: its tokens with the next ones as targets, and for each target the
    sampler's logprob, the advantage, and whether it was sampled and is trained on."""

    inputs: list[int]
    targets: Array
    logprobs: Array
    advantages: Array
    mask: Array
    replies: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())


def sequences(
    episode: Episode,
    values: Array,
    chosen: Array,
    unknown: float = 0.0,
    recorded: bool = False,
) -> list[Trained]:
    """The sequences of an episode: turns that extend the tokens before them share one.

    ``values`` are the advantages of its turns, of which those ``chosen`` are trained
    on; ``unknown`` is the logprob of all other tokens. Where the service has recorded
    what it sampled, a sequence ends with the last such turn, and names its replies."""
    joined: list[tuple[list[int], list[float], list[int]]] = []
    for index, turn in enumerate(episode.turns):
        known = len(joined[-1][0]) if joined else 0
        if not joined or turn.prompt[:known] != joined[-1][0]:
            joined.append(([], [], []))
            known = 0
        tokens, logprobs, turns = joined[-1]
        fresh = turn.prompt[known:]
        tokens += fresh + turn.tokens
        logprobs += [0.0] * len(fresh) + turn.logprobs
        turns += [-1] * len(fresh) + [index] * len(turn.tokens)
    made = []
    for tokens, logprobs, turns in joined:
        trained = [i for i, turn in enumerate(turns) if turn >= 0 and chosen[turn]]
        if not trained:
            continue
        replies, end = [], trained[-1] + 1 if recorded else len(tokens)
        for at in dict.fromkeys(turns[i] for i in trained) if recorded else ():
            first, count = turns.index(at), turns.count(at)
            replies.append((episode.turns[at].sequence_id, first, first + count))
        position = np.array(turns[1:end])
        mask = (position >= 0) & chosen[position]
        made.append(
            Trained(
                tokens[: end - 1],
                np.array(tokens[1:end], dtype=np.int64),
                np.where(mask, np.array(logprobs[1:end]), unknown).astype(np.float32),
                np.where(mask, values[position], 0.0),
                mask,
                replies,
            )
        )
    return [sequence for sequence in made if sequence.mask.any()]


def all_turns(episodes: Sequence[Episode]) -> list[Array]:
    """Every turn is trained on."""
    return [np.ones(len(episode.turns), dtype=bool) for episode in episodes]


def some_turns(
    episodes: Sequence[Episode], count: int, seed: int, stage: str, step: int
) -> list[Array]:
    """A random choice of so many turns is trained on."""
    turns = [len(episode.turns) for episode in episodes]
    chosen = np.ones(sum(turns), dtype=bool)
    if sum(turns) > count:
        generator = np.random.default_rng(stream(seed, "subsample", stage, step))
        chosen[generator.permutation(sum(turns))[count:]] = False
    return np.split(chosen, np.cumsum(turns)[:-1])


def tensors(inputs: Sequence[int], arrays: Mapping[str, Array]) -> types.Datum:
    """Arrays in the form of the service."""
    return types.Datum(
        model_input=types.ModelInput.from_ints(list(inputs)),
        loss_fn_inputs={k: types.TensorData.from_numpy(v) for k, v in arrays.items()},
    )


def sampled_datum(sequence: Trained, advantages: Array) -> types.Datum:
    """For a loss that compares with the sampler."""
    return tensors(
        sequence.inputs,
        {
            "target_tokens": sequence.targets,
            "logprobs": sequence.logprobs,
            "advantages": advantages.astype(np.float32),
        },
    )


def weighted_datum(sequence: Trained, weights: Array) -> types.Datum:
    """For a loss that weighs the logprobs of the trainer."""
    return tensors(
        sequence.inputs,
        {
            "target_tokens": sequence.targets,
            "weights": weights.astype(np.float32),
        },
    )


def own_datum(
    sequence: Trained,
    advantages: Array,
    names: Sequence[str],
    weight: float | None = None,
) -> types.Datum:
    """For a loss of one's own, with the inputs of those ``names``. Tokens that were not
    sampled count nowhere, and have the values of the first that was."""
    mask = sequence.mask
    first = int(np.argmax(mask))
    floats: dict[str, Any] = {
        "logq": np.where(mask, sequence.logprobs, sequence.logprobs[first]),
        "adv": np.where(mask, advantages, advantages[first]),
        "mask": mask,
        "first": np.arange(len(mask)) == first,
        "weight": weight,
    }
    inputs = {k: np.asarray(floats[k], dtype=np.float32) for k in floats if k in names}
    return tensors(sequence.inputs, {**inputs, "target_tokens": sequence.targets})


def with_replies(datum: types.Datum, sequence: Trained) -> types.Datum:
    """The datum, with the sampled sequence behind every token."""
    length = len(sequence.inputs)
    inputs = spans(sequence.replies, 0, length)
    return datum.with_provenance(inputs, spans(sequence.replies, 1, length + 1))


def spans(replies: Sequence[tuple[str, int, int]], first: int, end: int) -> list[Any]:
    """Where the tokens from ``first`` to ``end`` come from: a reply was sampled, and
    what lies before it was in the prompt that it answers."""
    made: list[Any] = []
    at = first
    for name, begin, stop in replies:
        start, stop = max(begin, first), min(stop, end)
        if start > at:
            made.append(
                types.PromptProvenanceSpan(
                    sequence_id=name, offset=at, length=start - at
                )
            )
        if stop > start:
            made.append(
                types.SampledProvenanceSpan(
                    sequence_id=name, offset=start - begin, length=stop - start
                )
            )
        at = stop
    return made


async def anchored(training: Any, data: list[types.Datum]) -> list[types.Datum]:
    """The datums with the trainer's own logprobs in place of nan. The service pulls
    every token to the logprobs that it is given; these have no gradient."""
    plain = [
        types.Datum(
            model_input=datum.model_input,
            loss_fn_inputs={
                "target_tokens": datum.loss_fn_inputs["target_tokens"],
                "weights": datum.loss_fn_inputs["advantages"],
            },
        )
        for datum in data
    ]
    output = await training.forward(plain, "cross_entropy")
    for datum, row in zip(data, output.loss_fn_outputs, strict=True):
        inputs = datum.loss_fn_inputs
        own, sampled = row["logprobs"].to_numpy(), inputs["logprobs"].to_numpy()
        made = np.where(np.isnan(sampled), own, sampled).astype(np.float32)
        inputs["logprobs"] = types.TensorData.from_numpy(made)
    return data
