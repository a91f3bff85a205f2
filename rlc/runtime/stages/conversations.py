"""Chats as sequences to train on, each message after the very prompt that it is sampled from."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from attrs import define, field

from rlc.chat import EnvError, opening, rendered, split_chunks
from rlc.data import Chat, DataError, Message
from rlc.runtime.rollouts.tokens import NOT_SAMPLED, TokenSequence

_ASKED: Message = {"role": "user", "content": "."}
_CALLED: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
_REASONED: Message = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "."}, {"type": "text", "text": "."}],
}


@define(slots=False)
class SupervisedRenderer:
    """Renders chats with a renderer of tinker-cookbook.

    ``differing`` counts the messages so far that the renderer writes after something else than the
    prompt that it makes to sample them.
    """

    renderer: Any
    name: str
    differing: int = field(default=0, init=False)

    def sequences(self, chat: Chat) -> list[TokenSequence]:
        """One sequence for each message that is trained on; those that extend the one before
        share it, as all do with a renderer that leaves earlier turns as they were.

        The weights are those of ``build_supervised_examples`` of tinker-cookbook 0.5.8, except
        that a token which the prompt supplies is never trained on. Raise DataError for a chat that
        the renderer does not show as it is.
        """
        self._require_shown(chat)
        try:
            messages = opening(self.renderer, chat.messages, chat.tools)
        except EnvError as error:
            raise DataError(str(error)) from error
        added = len(messages) - len(chat.messages)  # a system message with the tools
        sequences = list[TokenSequence]()
        for turn, at in enumerate(chat.trained):
            try:
                sequence = self._sequence(messages[: at + added + 1], turn)
            except DataError as error:
                raise DataError(f"message {at + 1}: {error.what}", error.hint) from error
            known = len(sequences[-1].tokens) if sequences else 0
            if known and sequence.tokens[:known] == sequences[-1].tokens:
                sequence.turns[:known] = sequences.pop().turns
            sequences.append(sequence)
        return sequences

    def _sequence(self, messages: list[Message], turn: int) -> TokenSequence:
        """The sequence that ends with the last of some messages, which is trained on."""
        from tinker_cookbook.exceptions import RendererError
        from tinker_cookbook.renderers import TrainOnWhat

        try:
            prompt, _ = split_chunks(self.renderer.build_generation_prompt(messages[:-1]))
            shown, weights = self.renderer.build_supervised_example(
                messages, train_on_what=TrainOnWhat.LAST_ASSISTANT_MESSAGE
            )
        except RendererError as error:
            raise DataError(str(error)) from error
        tokens, chunks = split_chunks(shown)
        turns = [turn if weight else NOT_SAMPLED for weight in weights.tolist()]
        if turn not in turns:
            raise DataError(f"the renderer `{self.name}` leaves nothing of it to train on")
        self.differing += tokens[: len(prompt)] != prompt
        return TokenSequence(tokens, [0.0] * len(tokens), turns, chunks)

    def _require_shown(self, chat: Chat) -> None:
        """Raise DataError for what the renderer would leave out without a word."""
        if any(message.get("tool_calls") for message in chat.messages) and not self._shows_calls:
            what = f"the renderer `{self.name}` does not write calls of tools"
            raise DataError(what, "take a model that was trained to call tools")
        reasoned = (at for at in chat.trained if not isinstance(chat.messages[at]["content"], str))
        if next(reasoned, None) is not None and not self._shows_reasoning:
            what = f"the renderer `{self.name}` leaves out the reasoning of what is trained on"
            raise DataError(what, "take a renderer that thinks, or data without reasoning")
        if chat.images and not hasattr(self.renderer, "image_processor"):
            raise DataError(f"the renderer `{self.name}` shows no images; take a model that sees")

    @cached_property
    def _shows_calls(self) -> bool:
        return self._differ(_CALLED, {**_CALLED, "tool_calls": []})

    @cached_property
    def _shows_reasoning(self) -> bool:
        return self._differ(_REASONED, {"role": "assistant", "content": "."})

    def _differ(self, one: Message, other: Message) -> bool:
        """Whether the renderer writes two replies differently, or refuses to write one of them."""
        from tinker_cookbook.exceptions import RendererError

        try:
            shown = [
                self.renderer.build_supervised_example([_ASKED, rendered(reply)])[0].to_ints()
                for reply in (one, other)
            ]
        except RendererError:
            return True  # and says so of the chat itself
        return bool(shown[0] != shown[1])
