"""From observations to tokens, and from the tokens of a reply to its text"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinker import types
from tinker_cookbook.renderers import get_text_content

Message = dict[str, Any]


class Question:
    """A prompt with one reply: messages, or a text of the user, through the model's renderer."""

    def __init__(self, renderer: Any, instruction: str = "", system: str = "") -> None:
        self.renderer, self.instruction = renderer, instruction
        self.stop = renderer.get_stop_sequences()
        self.begin: list[Message] = [{"role": "system", "content": system}] if system else []

    def observe(self, shown: str | Sequence[Message]) -> list[int]:
        messages = said(shown)
        if self.instruction:
            asked = messages[-1]["content"]
            gap = "" if asked.endswith("\n") else "\n"
            messages[-1] = {"role": "user", "content": asked + gap + self.instruction}
        return self.rendered([*self.begin, *messages])

    def reply(self, tokens: list[int]) -> str:
        message, _ = self.renderer.parse_response(tokens)
        return str(get_text_content(message))

    def rendered(self, messages: list[Message]) -> list[int]:
        tokens: list[int] = self.renderer.build_generation_prompt(messages).to_ints()
        return tokens


class Chat(Question):
    """A chat. Each prompt extends the tokens before it: an episode is one sequence to train on."""

    tokens: Sequence[int] = ()  # of the last prompt, and of the reply to it

    def observe(self, shown: str | Sequence[Message]) -> list[int]:
        first = not self.tokens
        self.tokens = super().observe(shown) if first else [*self.tokens, *self.added(said(shown))]
        return list(self.tokens)

    def reply(self, tokens: list[int]) -> str:
        self.tokens = [*self.tokens, *tokens]
        return super().reply(tokens)

    def added(self, messages: list[Message]) -> list[int]:
        """The tokens that messages add after a reply: those that do not depend on its text."""
        asked, (one, other) = {"role": "user", "content": "."}, ("A", "B")
        written, another = (
            self.rendered([asked, {"role": "assistant", "content": reply}, *messages])
            for reply in (one, other)
        )
        differs = (a != b for a, b in zip(reversed(written), reversed(another), strict=True))
        seam = written[len(written) - list(differs).index(True) :]
        last = self.tokens[-1]  # the end of the turn, unless the reply was cut off
        ended = last in self.stop and (seam[0] == last or seam[0] not in self.stop)
        return seam[1:] if ended else seam


def said(shown: str | Sequence[Message]) -> list[Message]:
    return [{"role": "user", "content": shown}] if isinstance(shown, str) else list(shown)


class Text:
    """A template filled with each observation: every turn is a prompt of its own."""

    stop = None

    def __init__(self, tokenizer: Any, template: str) -> None:
        self.tokenizer, self.template = tokenizer, template

    def observe(self, text: str) -> list[int]:
        prompt = self.template.replace("{observation}", text)
        tokens: list[int] = self.tokenizer.encode(prompt, add_special_tokens=False)
        return tokens

    def reply(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def model_input(tokens: Sequence[int]) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))
