"""Renderers whose prompts go on with the tokens that were sampled, for environments of
tinker-cookbook, which make their prompts themselves.

An environment reads a reply with `parse_response`, keeps the message, and has the chat so far shown
by `build_generation_prompt`. What it read carries the sampled tokens, so that a later prompt has
them, whoever called it meanwhile. A message that the environment wrote anew carries none: it is
shown as the template shows it, and what follows is a sequence of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rlc.chat import Seams, model_input, prompt_of, split_chunks

_OURS = "rlc/"  # before the name of a renderer: the cookbook asks for a name with a slash


class _Sampled:
    """The content of a reply, with the tokens it was read from, and the rest of its message."""

    reply: Sequence[int]
    rest: Mapping[str, Any]


class SampledText(_Sampled, str):
    """A text."""


class SampledParts(_Sampled, list[Any]):
    """A list of parts, as of a reply that thinks."""


class ContinuingRenderer:
    """What :func:`continuing` puts before the class of a renderer."""

    rlc_seams: Seams

    def parse_response(self, response: Sequence[int]) -> Any:
        """Return the message and how it ended, as the renderer reads it."""
        message, *how = super().parse_response(response)  # type: ignore[misc]
        kind = SampledText if isinstance(message["content"], str) else SampledParts
        content = kind(message["content"])
        content.reply, content.rest = tuple(response), _rest(message)
        return {**message, "content": content}, *how

    def build_generation_prompt(self, messages: Sequence[Any], *args: Any, **settings: Any) -> Any:
        """Return the prompt of the next reply: behind the last message that carries its tokens,
        what the template writes after a reply."""
        written = super().build_generation_prompt  # type: ignore[misc]
        last = max((i for i, one in enumerate(messages) if _carries(one)), default=None)
        if last is None or args or settings:  # a given beginning, another role: no turn of a chat
            return written(messages, *args, **settings)
        tokens, chunks = split_chunks(self.build_generation_prompt(messages[:last]))
        reply = messages[last]["content"].reply
        seam, shown = self.rlc_seams.after(reply, messages[last + 1 :])
        return model_input([*tokens, *reply, *seam], {**chunks, **shown})


def _rest(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in ("content", "role")}


def _carries(message: Mapping[str, Any]) -> bool:
    """Return whether a message is a reply of the model as it was read, with its tokens."""
    content = message["content"]
    if not isinstance(content, _Sampled) or message["role"] != "assistant":
        return False
    return content.rest == _rest(message)


def continuing(renderer: Any) -> Any:
    """Return a renderer of the cookbook as one whose prompts go on with the sampled tokens."""
    kind = type(renderer)
    made: Any = object.__new__(type(kind.__name__, (ContinuingRenderer, kind), {}))
    vars(made).update(vars(renderer))
    made.rlc_seams = Seams(made, partial(prompt_of, made))
    return made


def registered(name: str) -> str:
    """Return the name under which the cookbook's `get_renderer` makes such a renderer."""
    from tinker_cookbook.renderers import get_renderer, register_renderer

    def made(tokenizer: Any, image_processor: Any = None) -> Any:
        return continuing(get_renderer(name, tokenizer, image_processor))

    register_renderer(_OURS + name, made)
    return _OURS + name
