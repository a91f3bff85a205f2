"""What stands between a sampled reply and the next one, as the model's own template writes it.

A chat whose turns go on keeps the sampled tokens as they are. Only what the template writes after a
reply is rendered, behind a short conversation, and cut where that conversation's reply ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from attrs import define, field

from rlc.chat.turns import ANY_QUESTION, Chunks
from rlc.data import Message

Rendering = tuple[list[int], Chunks]

_REPLY, _OTHER = "A", "B"  # in a short conversation, which differs in nothing else


@define(eq=False)
class Seams:
    """The seams of a renderer. ``render`` returns messages as the prompt of a next reply."""

    renderer: Any
    render: Callable[[Sequence[Message]], Rendering]
    stop: list[int] | list[str] = field(init=False)
    # Where the reply of the short conversation ends, by the roles of the messages after it: for
    # some, templates put an empty thought into the reply.
    _ends: dict[tuple[str, ...], int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.stop = self.renderer.get_stop_sequences()

    @property
    def by_text(self) -> bool:
        """Whether texts end a turn, not tokens."""
        return all(isinstance(stop, str) for stop in self.stop)

    def after(self, reply: Sequence[int], messages: Sequence[Message]) -> Rendering:
        """Return the tokens and chunks that follow the tokens of a reply: the end of its turn,
        unless it was sampled, then the messages, and the beginning of the next reply."""
        tokens, chunks = self._rendered(_REPLY, messages)
        if self.by_text:
            return self._after_text(reply, messages, tokens), chunks
        seam = tokens[self._end(messages, tokens) :]
        ended = reply and reply[-1] in self.stop and seam[:1] in ([reply[-1]], self._turn_end)
        return seam[1:] if ended else seam, chunks

    def _rendered(self, reply: str, messages: Sequence[Message]) -> Rendering:
        return self.render([ANY_QUESTION, {"role": "assistant", "content": reply}, *messages])

    def _end(self, messages: Sequence[Message], written: Sequence[Any]) -> int:
        """Return where the reply ends in the short conversation, tokens or text, with messages."""
        roles = tuple(message["role"] for message in messages)
        if roles not in self._ends:
            other: Sequence[Any] = self._rendered(_OTHER, messages)[0]
            if self.by_text:
                other = self._decoded(other)
            pairs = zip(reversed(written), reversed(other), strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            self._ends[roles] = len(written) - same
        return self._ends[roles]

    @cached_property
    def _turn_end(self) -> list[int] | None:
        """The token with which the template ends a reply that is not the last, which may be another
        than the sampled ones; None if turns end with the mark of what comes next."""
        result: Message = {"role": "tool", "content": ".", "tool_call_id": "1", "name": "tool"}

        def first_after_reply(message: Message) -> list[int]:
            tokens, _ = self._rendered(_REPLY, [message])
            return tokens[self._end([message], tokens) :][:1]

        first = first_after_reply(ANY_QUESTION)
        return first if first == first_after_reply(result) else None

    def _after_text(
        self, reply: Sequence[int], messages: Sequence[Message], tokens: list[int]
    ) -> list[int]:
        """As :meth:`after`, where a text ends a turn: the token that completes it may have more."""
        whole, said = self._decoded(tokens), self._decoded(reply)
        given = self._end(messages, whole)
        for stop in self.stop:
            _, found, more = said.partition(text := str(stop))
            if not found:  # a part of it, where a limit has cut the reply off
                starts = (text[:length] for length in range(len(text), 0, -1))
                found = next((start for start in starts if said.endswith(start)), "")
            if found and whole.startswith(found, given):
                given += len(found)
                given += len(more) if whole.startswith(more, given) else 0
        for at in range(len(tokens)):
            length = len(self._decoded(tokens[:at]))
            if length == given:
                return tokens[at:]
            if length > given:  # a token has more than the end of the turn
                break
        rest: list[int] = self.renderer.tokenizer.encode(whole[given:], add_special_tokens=False)
        return rest

    def _decoded(self, tokens: Sequence[int]) -> str:
        return str(self.renderer.tokenizer.decode(list(tokens)))
