"""Histories around others: replies that end with text, and views of an episode for other models.

The token that completes the first end of a reply, the renderer's or a text, is a part of it, so
that what is trained on and what later prompts repeat are the sampled tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, frozen

from rlc.chat.prompts import (
    ChatHistory,
    PromptBuilder,
    chunks_of,
    encoded_reply,
    with_instruction,
    with_text,
)
from rlc.chat.turns import Action, Chunks, Observation
from rlc.data import require_field

if TYPE_CHECKING:
    from tinker import types


@frozen
class Ends:
    """What ends a reply: ids of tokens, or text. A service takes one kind or the other."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]

    def stop(self, tokenizer: Any) -> list[int] | list[str]:
        """Return what a service takes: tokens as their text where there is other text."""
        return list(self.cutting(tokenizer)) if self.texts else list(self.tokens)

    def cutting(self, tokenizer: Any) -> tuple[str, ...]:
        return (*self.texts, *(str(tokenizer.decode([token])) for token in self.tokens))

    def reached(self, tokens: Sequence[int], tokenizer: Any) -> int | None:
        """Return the number of tokens up to the one that ends the reply; None if none does."""
        texts = self.cutting(tokenizer)

        def is_over(count: int) -> bool:
            text = tokenizer.decode(tokens[:count])
            return any(end in text for end in texts)

        upto = next((at + 1 for at, one in enumerate(tokens) if one in self.tokens), len(tokens))
        if not is_over(upto):
            return upto if upto and tokens[upto - 1] in self.tokens else None
        return bisect_left(range(upto), True, key=is_over)


@define(eq=False)
class StoppingHistory:
    """A history whose replies also end with text. In later prompts the renderer's own end of a turn
    follows a reply that a text has ended; it was not sampled and is not trained on."""

    inner: PromptBuilder
    texts: tuple[str, ...]
    tokenizer: Any

    @property
    def stop(self) -> list[int] | list[str] | None:
        return self.inner.stop

    @property
    def chunks(self) -> Chunks:
        return chunks_of(self.inner)

    @property
    def ends(self) -> Ends:
        own = [self.tokenizer.eos_token_id] if self.stop is None else self.stop
        texts = (*self.texts, *(end for end in own if isinstance(end, str)))
        return Ends(tuple(end for end in own if isinstance(end, int)), texts)

    def observe(self, observation: Observation) -> list[int]:
        return self.inner.observe(observation)

    def reply(self, tokens: list[int]) -> Action:
        ends = self.ends
        closed = not ends.tokens or any(one in ends.tokens for one in tokens[-1:])
        if closed or ends.reached(tokens, self.tokenizer) is None:
            return self.inner.reply(tokens)
        if isinstance(self.inner, ChatHistory):
            return self.inner.reply(tokens, ends.tokens[0])
        return self.inner.reply([*tokens, ends.tokens[0]])


def stop_of(history: PromptBuilder) -> list[int] | list[str] | None:
    """Return what ends a reply, as a service takes it."""
    if not isinstance(history, StoppingHistory):
        return history.stop
    return history.ends.stop(history.tokenizer)


def ended_reply(reply: types.SampledSequence, history: PromptBuilder) -> types.SampledSequence:
    """Cut a reply at its end: some services take no mark of a renderer for a stop."""
    if not isinstance(history, StoppingHistory):
        return reply
    return upto_end(reply, history.ends, history.tokenizer)


def upto_end(reply: types.SampledSequence, ends: Ends, tokenizer: Any) -> types.SampledSequence:
    count = ends.reached(reply.tokens, tokenizer)
    if count is None or (count == len(reply.tokens) and reply.stop_reason == "stop"):
        return reply
    return first_tokens(reply, count)


def first_tokens(reply: types.SampledSequence, count: int) -> types.SampledSequence:
    """Return the reply that stopped after ``count`` tokens."""
    import numpy as np

    topk = reply.topk_logprobs_np
    if topk is not None:
        topk = type(topk)(topk.token_ids[:count], topk.logprobs[:count])
    return type(reply)(
        "stop",
        reply.sequence_id,
        np.array(reply.tokens[:count], dtype=np.int32),
        None if reply.logprobs is None else np.array(reply.logprobs[:count], dtype=np.float32),
        topk,
    )


# What a demonstration stands in, after the question (cf. arXiv 2601.19897).
DEMONSTRATION = "\nHere is an example of a response to this:\n{}\n\nNow respond in your own words."


@frozen
class ViewChange:
    """Changes of a view: the ``system`` message (None: as it is; empty: none), a ``demonstration``
    after the first question, by its field of the task's row, and a ``reader``, a tokenizer and a
    renderer, in whose tokens chats and the texts of replies are written."""

    system: str | None = None
    demonstration: str | None = None
    reader: tuple[Any, str] | None = None

    def first(self, seen: Observation) -> Observation:
        """Return the first observation as shown. Raise DataError if the row has no such field."""
        text, messages = seen.text, seen.messages
        if self.system is not None:
            messages = tuple(
                {**message, "content": ""} if message["role"] == "system" else message
                for message in messages
            )
        if self.demonstration is not None:
            require_field(seen.fields, self.demonstration, "texts")
            shown = seen.fields[self.demonstration]
            added = DEMONSTRATION.format(shown if isinstance(shown, str) else "\n".join(shown))
            text = with_text(text, added)
            messages = tuple(with_instruction(messages, added)) if messages else ()
        return evolve(seen, text=text, messages=messages)


AS_PLAYED = ViewChange()


class View:
    """The history of an episode as it is ``shown`` to another model."""

    def __init__(self, history: PromptBuilder, shown: ViewChange) -> None:
        self.history = history
        self._reader = shown.reader
        self._shown: ViewChange | None = shown

    @property
    def chunks(self) -> Chunks:
        return chunks_of(self.history)

    def observe(self, observation: Observation) -> list[int]:
        if self._shown is not None:
            observation, self._shown = self._shown.first(observation), None
        return self.history.observe(observation)

    def reply(self, tokens: list[int], action: Action) -> list[int]:
        """Record a reply that the player's history has parsed; return it as it is shown."""
        if self._reader is not None:
            tokens = encoded_reply(action.text, self.history, self._reader[0])
        self.history.reply(tokens)
        return tokens


def views_of(
    shown: Mapping[str, ViewChange], histories: Callable[[ViewChange], Callable[[], PromptBuilder]]
) -> dict[str, Callable[[], View]]:
    """Return factories of views; ``histories`` makes one of the histories behind them."""

    def view(one: ViewChange) -> Callable[[], View]:
        new_history = histories(one)
        return lambda: View(new_history(), one)

    return {name: view(one) for name, one in shown.items()}
