"""From observations to tokens, and from the tokens of a reply to its text."""

from __future__ import annotations

from typing import Any, Protocol

from tinker_cookbook.renderers import RenderContext


class History(Protocol):
    """The prompts of one episode."""

    stop: Any

    def observe(self, text: str) -> list[int]: ...

    def reply(self, tokens: list[int]) -> str: ...


class Chat:
    """A chat through the renderer: each prompt extends the tokens before it, so that a
    whole episode is one sequence to train on."""

    def __init__(self, renderer: Any, instruction: str) -> None:
        self.stop = renderer.get_stop_sequences()
        self.renderer = renderer
        self.instruction = instruction
        self.tokens: list[int] = []

    def observe(self, text: str) -> list[int]:
        user = {"role": "user", "content": text}
        if self.tokens:
            self.tokens = self.tokens + self.added_by(user)
            return self.tokens
        if self.instruction:
            gap = "" if text.endswith("\n") else "\n"
            user["content"] = text + gap + self.instruction
        self.tokens = self.rendered([user])
        return self.tokens

    def reply(self, tokens: list[int]) -> str:
        message, _ = self.renderer.parse_response(tokens)
        closed = tokens and tokens[-1] in self.stop
        self.tokens = self.tokens + tokens + ([] if closed else list(self.stop))
        content = message["content"]
        if isinstance(content, str):
            return content
        return "".join(part["text"] for part in content if part["type"] == "text")

    def added_by(self, user: dict[str, str]) -> list[int]:
        """The tokens that a user's turn adds after a reply."""
        reply = {"role": "assistant", "content": ""}
        context = RenderContext(idx=0, is_last=False)
        made = self.renderer.render_message(reply, context)
        parts = [made.header, *made.output] if made.header else made.output
        return self.rendered([reply, user])[sum(part.length for part in parts) :]

    def rendered(self, messages: list[dict[str, str]]) -> list[int]:
        tokens: list[int] = self.renderer.build_generation_prompt(messages).to_ints()
        return tokens


class Text:
    """A template filled with each observation: every turn is a prompt of its own."""

    stop = None

    def __init__(self, tokenizer: Any, template: str) -> None:
        self.tokenizer = tokenizer
        self.template = template

    def observe(self, text: str) -> list[int]:
        prompt = self.template.replace("{observation}", text)
        tokens: list[int] = self.tokenizer.encode(prompt, add_special_tokens=False)
        return tokens

    def reply(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))
