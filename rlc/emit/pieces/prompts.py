"""From observations to tokens, and from the tokens of a reply to its text"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tinker import types
from tinker_cookbook.renderers import get_text_content

from rlc.emit.pieces.job import *


class Question:
    """A prompt with one reply: messages, or a text of the user, through the model's renderer."""

    def __init__(self, renderer: Any, instruction: str = "", system: str = "") -> None:
        self.renderer, self.instruction = renderer, instruction
        self.stop = renderer.get_stop_sequences()
        self.begin: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []

    def observe(self, shown: str | Sequence[dict[str, Any]]) -> list[int]:
        messages = [{"role": "user", "content": shown}] if isinstance(shown, str) else [*shown]
        if self.instruction:
            asked = messages[-1]["content"].removesuffix("\n")
            messages[-1] = {"role": "user", "content": f"{asked}\n{self.instruction}"}
        tokens: list[int] = self.renderer.build_generation_prompt(
            [*self.begin, *messages]
        ).to_ints()
        return tokens

    def reply(self, tokens: list[int]) -> str:
        message, _ = self.renderer.parse_response(tokens)
        return str(get_text_content(message))


class Chat(Question):
    """A chat. Each prompt extends the tokens before it: an episode is one sequence to train on."""

    tokens: Sequence[int] = ()  # of the last prompt, and of the reply to it

    def observe(self, shown: str | Sequence[dict[str, Any]]) -> list[int]:
        first = not self.tokens
        self.tokens = super().observe(shown) if first else [*self.tokens, *self.added(shown)]
        return list(self.tokens)

    def reply(self, tokens: list[int]) -> str:
        self.tokens = [*self.tokens, *tokens]
        return super().reply(tokens)

    def added(self, shown: str | Sequence[dict[str, Any]]) -> list[int]:
        """The tokens that messages add after a reply: those that do not depend on its text."""
        messages = [{"role": "user", "content": shown}] if isinstance(shown, str) else [*shown]
        asked, render = {"role": "user", "content": "."}, self.renderer.build_generation_prompt
        written, another = (
            render([asked, {"role": "assistant", "content": reply}, *messages]).to_ints()
            for reply in ("A", "B")
        )
        differs = (a != b for a, b in zip(reversed(written), reversed(another), strict=False))
        seam: list[int] = written[len(written) - list(differs).index(True) :]
        last = self.tokens[-1]  # the end of the turn, unless the reply was cut off
        ended = last in self.stop and (seam[0] == last or seam[0] not in self.stop)
        return seam[1:] if ended else seam


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


def model_input(tokens: Sequence[Any]) -> types.ModelInput:
    """The prompt of tokens, in which an image or a sound stands in the first of its places."""
    if HAS_IMAGES:
        chunks: list[Any] = []
        shown = (one for one in tokens if one is not None)
        for text, run in groupby(shown, lambda one: isinstance(one, int)):
            part = list(run)
            chunks += [types.EncodedTextChunk(tokens=part)] if text else part
        return types.ModelInput(chunks=chunks)
    return types.ModelInput.from_ints(list(tokens))
