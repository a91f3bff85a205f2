"""Sequences to train on, as the service takes them"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from tinker import types

from rlc.emit.pieces.job import *
from rlc.emit.pieces.prompts import model_input
from rlc.emit.pieces.records import Episode, Turn
from rlc.seeds import derive_seed

Array = np.ndarray[Any, Any]


@dataclass
class Trained:
    """A sequence: its tokens, and for each after the first the sampler's logprob, the advantage,
    whether it was sampled and is trained on, and in which turn (-1: in none)."""

    tokens: list[Any]
    logprobs: Array
    advantages: Array
    mask: Array
    turns: Array
    episode: Episode
    if SCORERS:
        ref: Any = None  # the logprobs under a model that scores it
    if READS_WEIGHT:
        weight: float = 1.0  # of each of its tokens


def joined(turns: Sequence[Turn]) -> list[tuple[list[Any], list[float], list[int]]]:
    """Tokens, logprobs and turns (-1: in none) of sequences; prompts that extend one share it."""
    made: list[tuple[list[Any], list[float], list[int]]] = []
    for index, turn in enumerate(turns):
        known = (one for one in made[::-1] if turn.prompt[: len(one[0])] == one[0])
        if (own := next(known, None)) is None:
            made.append(own := ([], [], []))
        tokens, logprobs, places = own
        fresh = turn.prompt[len(tokens) :]
        tokens += fresh + turn.tokens
        logprobs += [0.0] * len(fresh) + turn.logprobs
        places += [-1] * len(fresh) + [index] * len(turn.tokens)
    return made


def plain_data(episodes: list[Episode]) -> list[types.Datum]:
    """The datums of an update, with the advantages of episodes or turns."""
    data = []
    for episode, value in zip(episodes, advantages(episodes), strict=True):
        values = np.resize(value, len(episode.turns))
        for tokens, logprobs, turns in joined(episode.turns):
            turn = np.array(turns[1:])
            adv = np.where(turn >= 0, values[turn], 0.0)
            if READS_LOGPROBS and adv.any():
                data.append(datum(tokens, logprobs=logprobs[1:], advantages=adv))
            if not READS_LOGPROBS and adv.any():
                data.append(datum(tokens, weights=adv))
    return data


def trained(step: int, episodes: list[Episode]) -> list[list[Trained]]:
    """The sequences of each episode, with its advantage or those of its turns."""
    played = []
    for episode, value in zip(episodes, advantages(episodes), strict=True):
        played.append(own := list[Trained]())
        values = np.resize(value, len(episode.turns))
        for tokens, logprobs, turns in joined(episode.turns):
            turn = np.array(turns[1:])
            adv = np.where(turn >= 0, values[turn], 0.0)
            own.append(Trained(tokens, np.array(logprobs[1:]), adv, turn >= 0, turn, episode))
    if TURNS and sum(len(one.turns) for one in episodes) > TURNS:
        choose(step, episodes, played)
        played = [[one for one in own if one.mask.any()] for own in played]
        played = [own for own in played if own]
    if IS_RECORDED:
        played = [[trimmed(one) for one in own] for own in played]
    return played


def choose(step: int, episodes: list[Episode], played: list[list[Trained]]) -> None:
    """Train on a random choice of turns only."""
    counts = [len(episode.turns) for episode in episodes]
    chosen = np.ones(sum(counts), dtype=bool)
    generator = np.random.default_rng(derive_seed(SEED, "subsample", STAGE, step))
    chosen[generator.permutation(sum(counts))[TURNS:]] = False
    for own, turns in zip(played, np.split(chosen, np.cumsum(counts)[:-1]), strict=True):
        for one in own:
            one.mask = one.mask & turns[one.turns]
            one.logprobs = np.where(one.mask, one.logprobs, 0.0)
            one.advantages = np.where(one.mask, one.advantages, 0.0)


def weigh(played: list[list[Trained]]) -> None:
    """Give each sequence the weight that its tokens have in the loss of an update."""
    counts = [1] * len(played)
    if AGGREGATE != "token_sum":
        counts = [sum(int(one.mask.sum()) for one in own) for own in played]
    if BY_SEQUENCE:
        counts = [len(own) for own in played]
    if AGGREGATE == "prompt_mean":
        tasks = Counter[Any]()
        for own, count in zip(played, counts, strict=True):
            tasks[task_of(own)] += count
        counts = [len(tasks) * tasks[task_of(own)] for own in played]
    if AGGREGATE == "token_mean":
        counts = [sum(counts)] * len(played)
    if AGGREGATE == "seq_mean_token_mean":
        counts = [len(played) * count for count in counts]
    if AGGREGATE == "seq_mean_token_sum":
        counts = [len(played)] * len(played)
    if AGGREGATE == "seq_mean_token_sum_norm":
        counts = [len(played) * LENGTH] * len(played)
    for one, count in ((one, n) for own, n in zip(played, counts, strict=True) for one in own):
        weight = 1.0 / count
        if OF_MEANS:
            weight = weight / int(one.mask.sum())
        if READS_WEIGHT:
            one.weight = weight
        else:
            one.advantages = weight * one.advantages


def data_of(played: list[list[Trained]]) -> list[types.Datum]:
    """The datums of an update, but those that could not change anything."""
    if AGGREGATE != "token_sum" or OF_MEANS:
        weigh(played)
    data = []
    for one in (one for own in played for one in own):
        read = {"logprobs": one.logprobs, "advantages": one.advantages}
        if not READS_LOGPROBS:
            read = {"weights": one.advantages}
        if LOSS_INPUTS:
            read = own_inputs(one)
        if READS_MASK:
            read["sequence_ratio_mask"] = one.mask
        made = datum(one.tokens, **read)
        if IS_RECORDED:
            made = with_replies(made, one)
        if PULLS:
            data.append(made)
        if not PULLS and one.advantages.any():
            data.append(made)
    return data


def datum(tokens: Sequence[Any], **floats: Any) -> types.Datum:
    """A sequence with what its loss reads of each token after the first; images are no targets."""
    targets = [one if isinstance(one, int) else 0 for one in tokens[1:]]
    read: dict[str, Array] = {"target_tokens": np.array(targets, dtype=np.int64)}
    read |= {name: np.asarray(array, dtype=np.float32) for name, array in floats.items()}
    inputs = {name: types.TensorData.from_numpy(array) for name, array in read.items()}
    return types.Datum(model_input=model_input(tokens[:-1]), loss_fn_inputs=inputs)


def own_inputs(one: Trained) -> dict[str, Any]:
    """What a loss of one's own reads. Tokens that were not sampled count nowhere, and have the
    values of the first that was."""
    first = int(np.argmax(one.mask))
    known: dict[str, Any] = {"logq": one.logprobs, "adv": one.advantages}
    if SCORERS:
        known["ref"] = one.ref
    read = {name: np.where(one.mask, array, array[first]) for name, array in known.items()}
    read |= {"mask": one.mask, "first": np.arange(len(one.mask)) == first}
    if READS_WEIGHT:
        read["weight"] = one.weight
    return {name: array for name, array in read.items() if name in LOSS_INPUTS}


async def anchor(training: Any, made: Sequence[Trained]) -> None:
    """Give sequences the trainer's own logprobs where nothing is trained on. The service pulls
    every token to the logprobs that it is given; these have no gradient."""
    plain = [datum(one.tokens, weights=one.advantages) for one in made]
    output = await training.forward(plain, "cross_entropy")
    for one, row in zip(made, output.loss_fn_outputs, strict=True):
        one.logprobs = np.where(one.mask, one.logprobs, row["logprobs"].to_numpy())


def task_of(own: Sequence[Trained]) -> tuple[str, int]:
    return own[0].episode.env, own[0].episode.task


def parts_of(played: Sequence[list[Trained]], count: int) -> list[list[list[Trained]]]:
    """The episodes of each of so many updates, those of a task together."""
    tasks = dict[tuple[str, int], list[list[Trained]]]()
    for own in played:
        tasks.setdefault(task_of(own), []).append(own)
    bounds = np.linspace(0, len(tasks), count + 1).round().astype(int)
    groups = list(tasks.values())
    return [sum(groups[a:b], list[list[Trained]]()) for a, b in pairwise(bounds)]


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
