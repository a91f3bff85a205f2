"""Episodes as another model is shown them: with another system message, or with a demonstration.

A view follows an episode beside its own history: it sees the same observations and replies, and
makes prompts of its own from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import evolve, frozen

from rlc.data.fields import require_field
from rlc.envs.base import Action, Observation
from rlc.envs.chunks import Chunks
from rlc.envs.history import History, chunks_of
from rlc.envs.tool_chat import with_text

# What a demonstration stands in, after the question (cf. arXiv 2601.19897).
DEMONSTRATION = "\nHere is an example of a response to this:\n{}\n\nNow respond in your own words."


@frozen
class Shown:
    """What a view changes: the ``system`` message (None: as it is; empty: none), and the field of
    the task's row that is added to the first question as a ``demonstration`` (None: none)."""

    system: str | None = None
    demonstration: str | None = None

    def first(self, seen: Observation) -> Observation:
        """The first observation as it is shown. Raise DataError if the row has no such field."""
        text, messages = seen.text, seen.messages
        if self.system is not None:
            messages = tuple(
                {**message, "content": ""} if message["role"] == "system" else message
                for message in messages
            )
        if self.demonstration is not None:
            require_field(seen.fields, self.demonstration, "text")
            added = DEMONSTRATION.format(seen.fields[self.demonstration])
            text = with_text(text, added)
            asked = [at for at, message in enumerate(messages) if message["role"] == "user"]
            messages = tuple(
                {**message, "content": with_text(message["content"], added)}
                if at == asked[-1]
                else message
                for at, message in enumerate(messages)
            )
        return evolve(seen, text=text, messages=messages)


class View:
    """The history of an episode as it is ``shown`` to another model."""

    def __init__(self, history: History, shown: Shown) -> None:
        self.stop = history.stop
        self.history = history
        self._shown: Shown | None = shown

    @property
    def chunks(self) -> Chunks:
        return chunks_of(self.history)

    def observe(self, observation: Observation) -> list[int]:
        if self._shown is not None:
            observation, self._shown = self._shown.first(observation), None
        return self.history.observe(observation)

    def reply(self, tokens: list[int]) -> Action:
        return self.history.reply(tokens)


def views_of(
    shown: Mapping[str, Shown], histories: Callable[[str | None], Callable[[], History]]
) -> dict[str, Callable[[], History]]:
    """Return factories of views; ``histories`` makes one of histories that begin with a system
    message (None: the environment's own)."""

    def view(one: Shown) -> Callable[[], History]:
        new_history = histories(one.system)
        return lambda: View(new_history(), one)

    return {name: view(one) for name, one in shown.items()}
