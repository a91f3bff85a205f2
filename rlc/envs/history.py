"""From observations to prompt tokens: what the policy has seen so far.

A history takes each observation and each sampled reply, and returns the next prompt as tokens.
Sampled tokens are kept as they are, never decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

from rlc.envs.base import Action, EnvError, Observation
from rlc.envs.chunks import NO_CHUNKS, Chunks
from rlc.envs.templates import Template
from rlc.envs.tool_chat import ToolChatHistory, fitting_renderer, opening, prompt_of, text_of

_GROUPS = 1_024  # whose openings are cached
_REPLY = {"role": "assistant", "content": ""}  # stands for any reply


class History(Protocol):
    """The prompt side of one episode."""

    @property
    def stop(self) -> list[int] | list[str] | None:
        """The renderer's own end of a turn; None: the tokenizer's end of sequence."""

    def observe(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole next prompt."""

    def reply(self, tokens: list[int]) -> Action:
        """Record the sampled tokens; return the action for the environment."""


@runtime_checkable
class ChunkedHistory(Protocol):
    """A history whose prompts may have parts that are not text."""

    @property
    def chunks(self) -> Chunks:
        """The parts of the prompts so far that are not text, by their marks among the tokens."""


def chunks_of(history: History) -> Chunks:
    """Return the ``chunks`` of a history; none if it has text alone."""
    return history.chunks if isinstance(history, ChunkedHistory) else NO_CHUNKS


class Chats:
    """What the chats of an environment share: a renderer of tinker-cookbook, how each of them
    begins, and a cache of what is rendered more than once.

    The renderer must have the extension property (it does not rewrite earlier turns), unless a
    chat ends with its first reply.
    """

    def __init__(self, renderer: Any, **begins: Any) -> None:
        """``begins``: the arguments of :func:`rlc.envs.tool_chat.opening` that are the same for all
        chats."""
        self.renderer = renderer
        self._begins = begins
        # All members of a group are asked the same question.
        self.asked = lru_cache(maxsize=_GROUPS)(lambda text: self.opening([_user(text)]))

    def opening(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[int], Chunks]:
        """The prompt of the first reply, after these messages."""
        return prompt_of(self.renderer, opening(self.renderer, messages, **self._begins))

    def more(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens that messages and the next generation prompt add after a reply."""
        return _prompt(self.renderer, [_REPLY, *messages])[self._known :]

    @cached_property
    def _known(self) -> int:
        """How many tokens a renderer puts before a reply and what follows it."""
        from tinker_cookbook.renderers import RenderContext

        ended = _prompt(self.renderer, [_REPLY])
        next_reply = RenderContext(idx=1, is_last=True, prev_message=_REPLY)
        header = self.renderer._get_generation_suffix("assistant", next_reply)
        return len(ended) - len(header)


class ChatHistory:
    """A chat. Each prompt extends the previous tokens, so a whole episode becomes one datum."""

    def __init__(self, chats: Chats) -> None:
        self.stop = chats.renderer.get_stop_sequences()
        self.chunks: Chunks = NO_CHUNKS
        self._chats = chats
        self._tokens: list[int] = []

    def observe(self, observation: Observation) -> list[int]:
        if self._tokens:
            said = observation.messages or (_user(observation.text),)
            self._tokens = self._tokens + self._chats.more(said)
        elif observation.messages:
            self._tokens, self.chunks = self._chats.opening(observation.messages)
        else:
            self._tokens, self.chunks = self._chats.asked(observation.text)
        return self._tokens

    def reply(self, tokens: list[int]) -> Action:
        message, _ = self._chats.renderer.parse_response(tokens)
        closed = tokens and tokens[-1] in self.stop
        # A reply cut off at max_tokens must still end before the next turn begins.
        self._tokens = self._tokens + tokens + ([] if closed else list(self.stop))
        return Action(text_of(message), message)  # thinking is not sent to the environment


class RewrittenChat(ToolChatHistory):
    """A chat whose renderer rewrites earlier turns: each turn is a prompt of its own."""

    def reply(self, tokens: list[int]) -> Action:
        message = super().reply(tokens).message
        return Action(text_of(message or {}), message)


class TextHistory:
    """A template that is filled with each observation: every turn is a prompt of its own."""

    stop: list[int] | list[str] | None = None  # at the tokenizer's end of sequence

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self._tokenizer = tokenizer
        self._template = template

    def observe(self, observation: Observation) -> list[int]:
        prompt = self._template(observation.text)
        tokens: list[int] = self._tokenizer.encode(prompt, add_special_tokens=False)
        return tokens

    def reply(self, tokens: list[int]) -> Action:
        return Action(self._tokenizer.decode(tokens, skip_special_tokens=True))


def chat_history(
    tokenizer: Any,
    renderer_name: str,
    one_reply: bool = False,
    may_rewrite: bool = False,
    **begins: Any,
) -> Callable[[], History]:
    """Return a factory of chats; ``begins`` as for :class:`Chats`.

    Raise EnvError for a renderer that does not fit the tokenizer, or that cannot keep a prefix,
    unless a chat ends with its first reply, or it ``may_rewrite`` earlier turns.
    """
    renderer = fitting_renderer(tokenizer, renderer_name)
    if may_rewrite and not renderer.has_extension_property:
        own = {name: begins.get(name, "") for name in ("instruction", "system")}
        return lambda: RewrittenChat(renderer, **own)
    chats = Chats(renderer, **begins)
    if one_reply:
        return lambda: ChatHistory(chats)
    if not renderer.has_extension_property:
        raise EnvError(
            f"the renderer `{renderer_name}` rewrites earlier turns, so chat() cannot keep them"
        )
    if not all(isinstance(stop, int) for stop in renderer.get_stop_sequences()):
        raise EnvError(f"the renderer `{renderer_name}` ends a turn with text, not with a token")
    return lambda: ChatHistory(chats)


def encoded_reply(reply: str, history: History, tokenizer: Any) -> list[int]:
    """Return a reply with its end: the history's own stop, or the end-of-sequence token."""
    tokens: list[int] = tokenizer.encode(reply, add_special_tokens=False)
    stop = history.stop
    if stop is None:
        return [*tokens, tokenizer.eos_token_id]
    if not isinstance(stop[0], int):
        raise EnvError("the renderer ends a turn with text, not with a token")
    return [*tokens, stop[0]]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _prompt(renderer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    tokens: list[int] = renderer.build_generation_prompt(messages).to_ints()
    return tokens
