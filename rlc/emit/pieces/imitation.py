"""Supervised examples: chats from a file, each in a random order of its epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from tinker import types
from tinker_cookbook.renderers import TrainOnWhat

from rlc.emit.pieces.seeds import stream

Tokens = tuple[list[int], list[float]]  # of a sequence, and the weight of each


def read_chats(path: str, field: str, count: int | None) -> list[list[dict[str, Any]]]:
    """The chats in a file of JSON lines."""
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return [row[field] for row in rows[:count]]


def trained_on(messages: Sequence[dict[str, Any]], which: str) -> list[int]:
    """The messages that are learnt: ``all`` of the assistant's, the ``last``, or those
    of the ``last_turn``."""
    replies = [i for i, one in enumerate(messages) if one["role"] == "assistant"]
    asked = [i for i in range(replies[-1]) if messages[i]["role"] == "user"]
    if which == "last":
        return replies[-1:]
    if which == "last_turn" and asked:
        return [i for i in replies if i > asked[-1]]
    return replies


def rendered(
    renderer: Any, messages: Sequence[dict[str, Any]], which: str
) -> list[Tokens]:
    """The sequences of a chat: one for each message that is learnt; those that extend
    the one before share it."""
    made: list[Tokens] = []
    for at in trained_on(messages, which):
        shown, weights = renderer.build_supervised_example(
            list(messages[: at + 1]),
            train_on_what=TrainOnWhat.LAST_ASSISTANT_MESSAGE,
        )
        tokens, weight = shown.to_ints(), [float(w > 0) for w in weights.tolist()]
        known = len(made[-1][0]) if made else 0
        if known and tokens[:known] == made[-1][0]:
            weight[:known] = made.pop()[1]
        made.append((tokens, weight))
    return made


def imitated(tokens: Sequence[int], weights: Sequence[float]) -> types.Datum:
    """A sequence as the service takes it, its targets shifted by one."""
    arrays: dict[str, Any] = {
        "target_tokens": np.array(tokens[1:], dtype=np.int64),
        "weights": np.array(weights[1:], dtype=np.float32),
    }
    return types.Datum(
        model_input=types.ModelInput.from_ints(list(tokens[:-1])),
        loss_fn_inputs={k: types.TensorData.from_numpy(v) for k, v in arrays.items()},
    )


def examples_of_step(
    seed: int, stage: str, count: int, batch: int, step: int
) -> list[int]:
    """The numbers of a step's examples: each epoch has a random order of all of them,
    and a step takes the next ones."""
    orders: dict[int, Any] = {}
    made = []
    for number in range((step - 1) * batch, step * batch):
        epoch, place = divmod(number, count)
        if epoch not in orders:
            own = stream(seed, "examples", stage, epoch)
            orders[epoch] = np.random.default_rng(own).permutation(count)
        made.append(int(orders[epoch][place]))
    return made
