"""From observations to prompt tokens: what the policy has seen so far.

A history is told each observation and each sampled reply and gives the next prompt as tokens.
Sampled tokens are kept as they are, never decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rlc.envs.base import Action, Observation
from rlc.envs.chunks import NO_CHUNKS, Chunks
from rlc.envs.templates import Template


class History(Protocol):
    """The prompt side of one episode."""

    stop: list[int] | list[str] | None

    def observe(self, observation: Observation) -> list[int]:
        """The tokens of the whole next prompt."""

    def reply(self, tokens: list[int]) -> Action:
        """Record the sampled tokens; gives what the environment gets."""


def chunks_of(history: History) -> Chunks:
    """What in a history's prompts so far is no text, by its marks among the tokens: the history's
    ``chunks``, where it has any."""
    return getattr(history, "chunks", NO_CHUNKS)


class ChatHistory:
    """A chat through a renderer of tinker-cookbook; each prompt extends the tokens before it,
    so a whole episode becomes one datum.

    ``renderer`` must have the extension property (it does not rewrite earlier turns), unless there
    is but one turn. ``shown`` are messages that come before the first observation.
    """

    def __init__(
        self, renderer: Any, instruction: str = "", shown: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.stop = renderer.get_stop_sequences()
        self._renderer = renderer
        self._instruction = instruction
        self._shown = shown
        self._tokens: list[int] = []

    def observe(self, observation: Observation) -> list[int]:
        if self._tokens:
            said = observation.messages or (_user(observation.text),)
            self._tokens = self._tokens + self._delta(said)
        else:
            text = _with_instruction(observation.text, self._instruction)
            said = observation.messages or (_user(text),)
            self._tokens = _prompt(self._renderer, [*self._shown, *said])
        return self._tokens

    def reply(self, tokens: list[int]) -> Action:
        message, _ = self._renderer.parse_response(tokens)
        closed = tokens and tokens[-1] in self.stop
        # A reply cut off at max_tokens still has to end before the next turn begins.
        self._tokens = self._tokens + tokens + ([] if closed else list(self.stop))
        return Action(_content(message), message)

    def _delta(self, said: Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens that messages and the next generation prompt add after a reply."""
        from tinker_cookbook.renderers import RenderContext

        reply = {"role": "assistant", "content": ""}
        # What a renderer puts before a conversation, and before the next reply, is in both.
        ended = _prompt(self._renderer, [reply])
        next_reply = RenderContext(idx=1, is_last=True, prev_message=reply)
        header = self._renderer._get_generation_suffix("assistant", next_reply)
        return _prompt(self._renderer, [reply, *said])[len(ended) - len(header) :]


class TextHistory:
    """A template filled with each observation: every turn is a prompt of its own."""

    stop: list[int] | list[str] | None = None  # the tokenizer's end of sequence

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self._tokenizer = tokenizer
        self._template = template

    def observe(self, observation: Observation) -> list[int]:
        prompt = self._template(observation.text)
        tokens: list[int] = self._tokenizer.encode(prompt, add_special_tokens=False)
        return tokens

    def reply(self, tokens: list[int]) -> Action:
        return Action(self._tokenizer.decode(tokens, skip_special_tokens=True))


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _with_instruction(text: str, instruction: str) -> str:
    if not instruction:
        return text
    return text + ("" if text.endswith("\n") else "\n") + instruction


def _prompt(renderer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    tokens: list[int] = renderer.build_generation_prompt(messages).to_ints()
    return tokens


def _content(message: Any) -> str:
    """The text of a parsed reply; thinking parts are not sent to the environment."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")
