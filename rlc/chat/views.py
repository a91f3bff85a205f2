"""Episodes as another model is shown them: with another system message, with a demonstration, or in
the tokens of that model.

A view follows an episode beside its own history: it sees the same observations and replies, and
makes prompts of its own from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen

from rlc.chat.prompts import PromptBuilder, chunks_of, encoded_reply, with_text
from rlc.chat.tokens import Chunks
from rlc.chat.turns import Action, Observation
from rlc.data import require_field

# What a demonstration stands in, after the question (cf. arXiv 2601.19897).
DEMONSTRATION = "\nHere is an example of a response to this:\n{}\n\nNow respond in your own words."


@frozen
class ViewChange:
    """What a view changes: the ``system`` message (None: as it is; empty: none), and the field of
    the task's row that is added to the first question as a ``demonstration`` (None: none). With a
    ``reader``, a tokenizer and the name of a renderer, chats are written as that model reads them,
    and replies are its tokens for their text, without any thinking."""

    system: str | None = None
    demonstration: str | None = None
    reader: tuple[Any, str] | None = None

    def first(self, seen: Observation) -> Observation:
        """The first observation as it is shown. Raise DataError if the row has no such field."""
        text, messages = seen.text, seen.messages
        if self.system is not None:
            messages = tuple(
                {**message, "content": ""} if message["role"] == "system" else message
                for message in messages
            )
        if self.demonstration is not None:
            require_field(seen.fields, self.demonstration, "texts")
            shown = seen.fields[self.demonstration]
            text = shown if isinstance(shown, str) else "\n".join(shown)
            added = DEMONSTRATION.format(text)
            text = with_text(text, added)
            asked = [at for at, message in enumerate(messages) if message["role"] == "user"]
            messages = tuple(
                {**message, "content": with_text(message["content"], added)}
                if at == asked[-1]
                else message
                for at, message in enumerate(messages)
            )
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
        """Record a reply, which the player's history has parsed; return it as it is shown."""
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
