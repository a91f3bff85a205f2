"""Pairs of replies, of which one is better"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tinker import types

from rlc.algo import OF_SIDES, sampled_examples
from rlc.data import PROMPTS, REPLIES, transcript
from rlc.emit.pieces.datums import Array, datum
from rlc.emit.pieces.imitation import Message, Weighted, is_short, rendered
from rlc.emit.pieces.job import *
from rlc.emit.pieces.training import opened

Side = list[Weighted]  # the sequences of a chat; of its reply each token weighs 1


@dataclass
class Pair:
    """A better reply and a worse one; or a labelled one, and one to another prompt."""

    sides: tuple[Side, Side]
    good: bool = True


def prompt_of(row: Mapping[str, Any]) -> list[Message] | None:
    """The prompt of a row, a text or messages; a text may be a transcript. None if the replies are
    whole chats."""
    prompt = next((row[name] for name in PROMPTS if row.get(name) is not None), None)
    if isinstance(prompt, str):
        prompt = transcript(prompt) or [{"role": "user", "content": prompt}]
        prompt = [one for one in prompt if one["content"]]
    if prompt and row.get("system") and prompt[0]["role"] != "system":
        prompt = [{"role": "system", "content": row["system"]}, *prompt]
    return prompt


def chat_after(prompt: list[Message] | None, reply: Any) -> list[Message]:
    """A prompt and its reply, a text or messages; a text alone is a transcript."""
    if isinstance(reply, str) and prompt is None:
        return transcript(reply) or []
    given = [{"role": "assistant", "content": reply}] if isinstance(reply, str) else reply
    whole = given if given[0]["role"] != "assistant" else [*(prompt or []), *given]
    return [{"role": one["role"], "content": one["content"]} for one in whole]


def replies(renderer: Any, chat: Sequence[Message], asked: int) -> Side:
    """The sequences of a chat, of which its replies count after so many messages."""
    learnt = [i for i in range(asked, len(chat)) if chat[i]["role"] == "assistant"]
    return rendered(renderer, chat, learnt)


def pairs_of(renderer: Any, rows: Sequence[Mapping[str, Any]], **limits: Any) -> list[Pair]:
    """The better and the worse reply of each row but ties."""
    made = []
    for row in rows:
        chats = [chat_after(prompt_of(row), row[name]) for name in ("chosen", "rejected")]
        if chats[0] == chats[1]:
            continue
        asked = [one == other for one, other in zip(*chats, strict=False)].index(False)
        better, worse = (replies(renderer, chat, asked) for chat in chats)
        if is_short(row, [*better, *worse], **limits):
            made.append(Pair((better, worse)))
    return made


def labelled_of(renderer: Any, rows: Sequence[Mapping[str, Any]], **limits: Any) -> list[Pair]:
    """The reply of each row with its label, and beside it the next one to another prompt."""
    known, made = [], []
    for row in rows:
        prompt = prompt_of(row)
        chat = chat_after(prompt, next(row[name] for name in REPLIES if row.get(name) is not None))
        users = [at for at, one in enumerate(chat) if one["role"] == "user"]
        side = replies(renderer, chat, users[-1] + 1 if prompt is None else len(prompt))
        if is_short(row, side, **limits):
            begin = side[0][1].index(1.0)
            good = str(row["label"]).strip().lower() in ("true", "1", "1.0")
            known.append((side, side[0][0][:begin], side[0][0][begin:], good))
    for at, (side, asked, _, good) in enumerate(known):
        others = (one for one in (*known[at + 1 :], *known[:at]) if one[1] != asked)
        reply = next(others, known[at])[2]
        mixed = asked + reply, [0.0] * len(asked) + [1.0] * len(reply)
        made.append(Pair((side, [mixed]), good))
    return made


def masks_of(side: Side) -> list[Array]:
    return [np.array(weights[1:]) > 0 for _, weights in side]


def of_reply(side: Side, rows: Sequence[Array]) -> Array:
    """The logprobs of the tokens of a reply, of those of its sequences."""
    parts = [row[mask] for mask, row in zip(masks_of(side), rows, strict=True)]
    return np.concatenate(parts).astype(np.float64)


def tokens_of(pairs: Sequence[Pair]) -> int:
    """How many tokens a forward pass reads."""
    return sum(len(tokens) - 1 for pair in pairs for side in pair.sides for tokens, _ in side)


def sums(rows: Sequence[Array]) -> Array:
    return np.array([row.sum() for row in rows])


def total_of(rows: Sequence[Sequence[Array]], masks: Sequence[Sequence[Array]]) -> float:
    """The sum of the logprobs that are marked."""
    pairs = zip(rows, masks, strict=True)
    return sum(
        sum(float(r[m].astype(np.float64).sum()) for r, m in zip(*own, strict=True))
        for own in pairs
    )


@dataclass
class Judge:
    """Judges pairs by the logprobs of their replies, under the weights and under a reference, which
    is asked for each once."""

    training: Any
    reference: Any
    known: dict[int, Array] = field(default_factory=dict)

    async def judged(self, pairs: Sequence[Pair]) -> tuple[list[types.Datum], dict[str, float]]:
        """What pairs teach: tokens weighed by the slopes of their loss, and its metrics."""
        sides = [side for pair in pairs for side in pair.sides]
        whole, masks = await self.by_trainer(sides), [masks_of(side) for side in sides]
        rows = [of_reply(*one) for one in zip(sides, whole, strict=True)]
        scores, counts = sums(rows), np.array([len(row) for row in rows])
        read: dict[str, Any] = {"good": np.array([float(pair.good) for pair in pairs])}
        for at, name in enumerate(NAMES):
            logp, _, length, token, _ = OF_SIDES[name]
            read |= {logp: scores[at::2], length: counts[at::2], token: np.concatenate(rows[at::2])}
        if REFERENCE:
            theirs = await self.by_reference(sides)
            scores = scores - sums(theirs)
            for at, name in enumerate(NAMES):
                _, ref, _, _, token = OF_SIDES[name]
                read |= {ref: sums(theirs[at::2]), token: np.concatenate(theirs[at::2])}
        if LIKELIHOOD:
            likely = masks[::2]
            if LIKELIHOOD == "chat_nll":
                likely = [[np.ones_like(mask) for mask in own] for own in likely]
            count = sum(int(mask.sum()) for own in likely for mask in own)
            read[LIKELIHOOD] = np.full(len(pairs), -total_of(whole[::2], likely) / count)
        slopes = {name: slope(**read) / len(pairs) for name, slope in SLOPES.items()}
        taught: list[list[types.Datum]] = [[] for _ in sides]
        for at, name in enumerate(TRAINED):
            logp, _, _, token, _ = OF_SIDES[name]
            each = np.broadcast_to(slopes.get(logp, 0.0), len(pairs))
            each = np.repeat(each, counts[at::2]) + slopes.get(token, 0.0)
            marks = [mask for own in masks[at::2] for mask in own]
            parts = np.split(-each, np.cumsum([mask.sum() for mask in marks])[:-1])
            weights = [np.zeros(len(mask)) for mask in marks]
            for weight, mask, part in zip(weights, marks, parts, strict=True):
                weight[mask] = part
            if LIKELIHOOD and at == 0:
                share = float(np.broadcast_to(slopes[LIKELIHOOD], len(pairs)).sum()) / count
                for weight, mask in zip(weights, [m for own in likely for m in own], strict=True):
                    weight += share * mask
            of_side = iter(weights)
            for own, side in zip(taught[at::2], sides[at::2], strict=True):
                own += [datum(tokens, weights=next(of_side)) for tokens, _ in side]
        if OF_MEANS:
            scores = scores / counts
        measured = {"loss/mean": float(np.mean(np.broadcast_to(loss(**read), len(pairs))))}
        ahead = scores[::2] - scores[1::2]
        if IS_LABELLED:
            good = read["good"] > 0
            ahead = np.subtract.outer(scores[::2][good], scores[::2][~good]).ravel()
        if len(ahead):  # of equals, half is right
            measured["accuracy"] = float(np.mean(0.5 + 0.5 * np.sign(ahead)))
        return [one for own in taught for one in own], measured

    async def by_trainer(self, sides: Sequence[Side]) -> list[list[Array]]:
        """The logprobs of all tokens of sides under the weights, by sequences."""
        data = [datum(tokens, weights=weights[1:]) for side in sides for tokens, weights in side]
        output = await self.training.forward(data, "cross_entropy")
        rows = iter([row["logprobs"].to_numpy() for row in output.loss_fn_outputs])
        return [[next(rows) for _ in side] for side in sides]

    async def by_reference(self, sides: Sequence[Side]) -> list[Array]:
        """The logprobs of replies under a model that does not change, each asked for once."""

        async def ask(side: Side) -> None:
            texts = [types.ModelInput.from_ints(tokens) for tokens, _ in side]
            found = await asyncio.gather(*map(self.reference.compute_logprobs, texts))
            rows = [np.array(row[1:], dtype=np.float32) for row in found]
            self.known[id(side)] = of_reply(side, rows)

        await asyncio.gather(*(ask(side) for side in sides if id(side) not in self.known))
        return [self.known[id(side)] for side in sides]


async def train(steps: int, metrics: str) -> None:
    run = await opened(steps, metrics)
    pairs, *heldout = data_sets(run.training.get_tokenizer())
    reference = None
    if REFERENCE:
        reference = await run.service.create_sampling_client(**REFERENCE)
    judge = Judge(run.training, reference)
    for step in range(1, steps + 1):
        numbers = sampled_examples(SEED, STAGE, len(pairs), BATCH, step)
        batch = [pairs[number] for number in numbers]
        data, measured = await judge.judged(batch)
        await run.update(run.training.forward_backward(data, "cross_entropy"), step)
        if LIMITS:
            run.used["prefill"] += tokens_of(batch)
            run.used["trained"] += sum(one.model_input.length for one in data)
        if IS_COMPARED and (step == steps or step % COMPARE_EVERY == 0):
            _, found = await judge.judged(heldout[0])
            measured["heldout/loss"] = found["loss/mean"]
            measured["heldout/accuracy"] = found["accuracy"]
            if LIMITS:
                run.used["prefill"] += tokens_of(heldout[0])
        if await run.is_over(step, measured):
            break
