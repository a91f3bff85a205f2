"""Pairs of replies, of which one is better"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tinker import types

from rlc.data import transcript
from rlc.emit.pieces.datums import Array
from rlc.emit.pieces.imitation import Message, Tokens, rendered, weighted

Side = list[Tokens]  # the sequences of a chat; of its reply each token weighs 1
PROMPTS = ("prompt", "question", "instruction", "query", "input", "context")


def chat_after(prompt: Any, reply: Any) -> list[Message]:
    """A prompt and its reply, each a text or messages; a text alone is a transcript."""
    if isinstance(prompt, str):
        prompt = transcript(prompt) or [{"role": "user", "content": prompt}]
        prompt = [one for one in prompt if one["content"]]
    if isinstance(reply, str) and prompt is None:
        return transcript(reply) or []
    given = [{"role": "assistant", "content": reply}] if isinstance(reply, str) else reply
    whole = given if given[0]["role"] != "assistant" else [*(prompt or []), *given]
    return [{"role": one["role"], "content": one["content"]} for one in whole]


def pairs_of(
    renderer: Any, rows: Sequence[Mapping[str, Any]], most: int | None = None, drops: bool = False
) -> list[tuple[Side, Side]]:
    """The better and the worse reply of each row but ties; those with more than so many tokens are
    left out, or an error."""
    made = []
    for number, row in enumerate(rows, start=1):
        prompt = next((row[name] for name in PROMPTS if row.get(name) is not None), None)
        chats = [chat_after(prompt, row[name]) for name in ("chosen", "rejected")]
        if chats[0] == chats[1]:
            continue
        asked = [one == other for one, other in zip(*chats, strict=False)].index(False)
        better, worse = (
            rendered(renderer, c, [i for i in range(asked, len(c)) if c[i]["role"] == "assistant"])
            for c in chats
        )
        if most is None or all(len(tokens) <= most for tokens, _ in (*better, *worse)):
            made.append((better, worse))
        elif not drops:
            raise ValueError(f"row {number} has more than {most} tokens")
    return made


def of_reply(side: Side, rows: Sequence[Array]) -> Array:
    """The logprobs of the tokens of a reply, of those of its sequences."""
    masks = (np.array(weights[1:]) > 0 for _, weights in side)
    parts = [row[mask] for mask, row in zip(masks, rows, strict=True)]
    return np.concatenate(parts).astype(np.float64)


async def by_trainer(training: Any, sides: Sequence[Side]) -> list[Array]:
    """The logprobs of replies under the weights."""
    data = [weighted(*one) for side in sides for one in side]
    output = await training.forward(data, "cross_entropy")
    rows = iter([row["logprobs"].to_numpy() for row in output.loss_fn_outputs])
    return [of_reply(side, [next(rows) for _ in side]) for side in sides]


async def by_model(model: Any, sides: Sequence[Side], known: dict[int, Array]) -> list[Array]:
    """The logprobs of replies under a model that does not change, each asked for once."""

    async def ask(side: Side) -> None:
        texts = [types.ModelInput.from_ints(tokens) for tokens, _ in side]
        found = await asyncio.gather(*(model.compute_logprobs(text) for text in texts))
        known[id(side)] = of_reply(side, [np.array(row[1:], dtype=np.float32) for row in found])

    await asyncio.gather(*(ask(side) for side in sides if id(side) not in known))
    return [known[id(side)] for side in sides]


def judged(
    sides: Sequence[Side],
    rows: Sequence[Array],
    ref: Sequence[Array] | None,
    functions: Sequence[Callable[..., Any]],
    mean: bool,
) -> tuple[list[types.Datum], dict[str, float]]:
    """What pairs teach: tokens weighed by the slope of their loss, and its metrics. ``functions``:
    the loss and its slopes; ``mean``: a reply counts with the mean logprob of its tokens."""
    sums, counts = (np.array([float(of(row)) for row in rows]) for of in (np.sum, len))
    before = np.array([row.sum() for row in ref]) if ref else np.zeros(len(rows))
    columns = {"": sums, "_ref": before, "_length": counts}
    given = {f"chosen{name}": column[::2] for name, column in columns.items()}
    given |= {f"rejected{name}": column[1::2] for name, column in columns.items()}
    pairs = len(sides) // 2
    loss, *slopes = (np.broadcast_to(one(**given), pairs) for one in functions)
    weights = -np.stack(slopes, axis=1).ravel() / pairs
    data = [
        weighted(tokens, weight * np.array(mask))
        for side, weight in zip(sides, weights, strict=True)
        for tokens, mask in side
    ]
    scores = (sums - before) / (counts if mean else 1.0)
    ahead = 0.5 + 0.5 * np.sign(scores[::2] - scores[1::2])
    return data, {"loss/mean": float(np.mean(loss)), "accuracy": float(np.mean(ahead))}
