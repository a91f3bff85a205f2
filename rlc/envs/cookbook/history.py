"""Prompts and replies as tokens, for environments that render and parse them themselves."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from rlc.chat import NO_CHUNKS, Action, Chunks, Observation

Stop = list[int] | list[str] | None


@frozen
class TokenObservation(Observation):
    """An observation that is the whole next prompt, with what ends the reply to it. The ``tokens``
    include the marks of ``chunks``."""

    tokens: tuple[int, ...] = ()
    chunks: Chunks = NO_CHUNKS
    stop: tuple[int, ...] | tuple[str, ...] = ()


@frozen
class TokenAction(Action):
    """A reply as it was sampled. ``finished``: it ended by itself, not at max_tokens."""

    tokens: tuple[int, ...] = ()
    finished: bool = True


class TokenHistory:
    """Passes prompts and replies on as they are. If a prompt extends the previous prompt and its
    reply, the turns become one datum."""

    def __init__(self, tokenizer: Any) -> None:
        self.stop: Stop = None
        self.chunks: Chunks = NO_CHUNKS
        self._tokenizer = tokenizer

    def observe(self, observation: Observation) -> list[int]:
        """The prompt of a :class:`TokenObservation`."""
        assert isinstance(observation, TokenObservation)
        self.stop = list(observation.stop) or None  # type: ignore[assignment]
        self.chunks = observation.chunks
        return list(observation.tokens)

    def reply(self, tokens: list[int]) -> TokenAction:
        text = self._tokenizer.decode(tokens)
        finished = any(
            text.endswith(end) if isinstance(end, str) else end in tokens[-1:]
            for end in (*(self.stop or ()), self._tokenizer.eos_token_id)
        )
        return TokenAction(text, tokens=tuple(tokens), finished=finished)
