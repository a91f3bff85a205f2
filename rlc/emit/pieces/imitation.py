"""Chats as sequences to learn"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np
from tinker import types
from tinker_cookbook.renderers import TrainOnWhat

from rlc.algo import sampled_examples
from rlc.emit.pieces.datums import datum
from rlc.emit.pieces.job import *
from rlc.emit.pieces.tasks import asked
from rlc.emit.pieces.training import opened

Message = dict[str, Any]
Weighted = tuple[list[int], list[float]]  # of a sequence, and the weight of each
ROLES = {"human": "user", "gpt": "assistant"}  # of ShareGPT


def chat_of(row: Mapping[str, Any], field: str | None) -> list[Message]:
    """The chat of a row: messages with a role and a text."""
    given = row[field] if field else row.get("messages") or row["conversations"]
    made = [{"role": one.get("role") or one["from"]} for one in given]
    for one, message in zip(given, made, strict=True):
        message["role"] = ROLES.get(message["role"], message["role"])
        message["content"] = one["content"] if "content" in one else one["value"]
        known = {"role", "content", "from", "value"}
        if not isinstance(message["content"], str) or any(one[key] for key in {*one} - known):
            raise ValueError(f"a message of more than a text: {one}")
    if row.get("system") and not row.get("messages") and made[0]["role"] != "system":
        made.insert(0, {"role": "system", "content": row["system"]})
    return made


def trained_on(messages: Sequence[Message], which: str) -> list[int]:
    """The messages that are learnt: ``all`` of the assistant's, the ``last``, or those of the
    ``last_turn``."""
    replies = [i for i, one in enumerate(messages) if one["role"] == "assistant"]
    asked = [i for i in range(replies[-1]) if messages[i]["role"] == "user"]
    if which == "last":
        return replies[-1:]
    return [i for i in replies if which == "all" or not asked or i > asked[-1]]


def rendered(renderer: Any, messages: Sequence[Message], learnt: Sequence[int]) -> list[Weighted]:
    """The sequences of a chat: one for each message that is learnt; those that extend the one
    before share it."""
    made: list[Weighted] = []
    for at in learnt:
        shown, weights = renderer.build_supervised_example(
            list(messages[: at + 1]), train_on_what=TrainOnWhat.LAST_ASSISTANT_MESSAGE
        )
        tokens, weight = shown.to_ints(), [float(w > 0) for w in weights.tolist()]
        known = len(made[-1][0]) if made else 0
        if known and tokens[:known] == made[-1][0]:
            weight[:known] = made.pop()[1]
        made.append((tokens, weight))
    return made


def is_short(
    row: Mapping[str, Any], made: Sequence[Weighted], most: int | None = None, drops: bool = False
) -> bool:
    """Whether the sequences of a row have at most so many tokens. Others are left out, or an
    error."""
    short = most is None or all(len(tokens) <= most for tokens, _ in made)
    if not (short or drops):
        raise ValueError(f"more than {most} tokens: {str(row)[:200]}")
    return short


def examples_of(
    renderer: Any,
    rows: Sequence[Mapping[str, Any]],
    which: str,
    field: str | None = None,
    **limits: Any,
) -> list[list[types.Datum]]:
    """What is learnt of the chat of each row."""
    made = []
    for row in rows:
        chat = chat_of(row, field)
        example = rendered(renderer, chat, trained_on(chat, which))
        if is_short(row, example, **limits):
            made.append([datum(tokens, weights=weights[1:]) for tokens, weights in example])
    return made


def answers_of(
    renderer: Any, rows: Sequence[Mapping[str, Any]], prompt: str, reply: str, **limits: Any
) -> list[list[types.Datum]]:
    """What is learnt of rows: the text of a reply, after a prompt as the model is sampled with."""
    made = []
    for row in rows:
        shown = renderer.build_generation_prompt(asked(row, prompt)).to_ints()
        text = renderer.tokenizer.encode(str(row[reply]), add_special_tokens=False)
        tokens = [*shown, *text, renderer.get_stop_sequences()[0]]
        weights = [0.0] * len(shown) + [1.0] * (len(text) + 1)
        if is_short(row, [(tokens, weights)], **limits):
            made.append([datum(tokens, weights=weights[1:])])
    return made


def all_of(data: Any) -> list[list[types.Datum]]:
    """The examples of a data set of the cookbook, in their order."""
    made = [one for number in range(len(data)) for one in data.get_batch(number)]
    return [[one] for one in made if weight_of([one])]


def weight_of(data: Sequence[types.Datum]) -> float:
    """The sum of the weights of tokens."""
    weights = (one.loss_fn_inputs["weights"].to_numpy() for one in data)
    return fsum(float(one.astype(np.float64).sum()) for one in weights)


async def heldout_loss(training: Any, data: Sequence[types.Datum]) -> float:
    """The mean loss of a token that is not learnt from."""
    parts = [data[start : start + 128] for start in range(0, len(data), 128)]
    outputs = await asyncio.gather(*(training.forward(p, "cross_entropy") for p in parts))
    rows = [row["logprobs"].to_numpy() for output in outputs for row in output.loss_fn_outputs]
    weights = [one.loss_fn_inputs["weights"].to_numpy().astype(np.float64) for one in data]
    return fsum(-float(w @ row) for w, row in zip(weights, rows, strict=True)) / weight_of(data)


async def train(steps: int, metrics: str) -> None:
    run = await opened(steps, metrics)
    examples, *heldout = data_sets(run.training.get_tokenizer())
    for step in range(1, steps + 1):
        numbers = sampled_examples(SEED, STAGE, len(examples), BATCH, step)
        batch = [one for number in numbers for one in examples[number]]
        loss = await run.update(run.training.forward_backward(batch, "cross_entropy"), step)
        measured = {"loss/mean": loss / weight_of(batch), "loss/sum": loss}
        if LIMITS:
            run.used["trained"] += sum(one.model_input.length for one in batch)
        if IS_COMPARED and (step == steps or step % COMPARE_EVERY == 0):
            scored = [one for example in heldout[0] for one in example]
            measured["heldout/loss"] = await heldout_loss(run.training, scored)
            if LIMITS:
                run.used["prefill"] += sum(one.model_input.length for one in scored)
        if await run.is_over(step, measured):
            break
