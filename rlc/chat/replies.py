"""What ends a reply: the renderer's own end of a turn, and text that a recipe or a request names.

A reply ends with the token that completes the first of them. That token is a part of the reply as
it was sampled, with whatever text it has beyond, so that what is trained on and what later prompts
repeat are the tokens that the model sampled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from rlc.chat.prompts import PromptBuilder, chunks_of
from rlc.chat.tokens import Chunks
from rlc.chat.turns import Action, Observation

if TYPE_CHECKING:
    from tinker import types


@frozen
class Ends:
    """What ends a reply: ids of tokens, or text. A service takes one kind or the other."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]

    def stop(self, tokenizer: Any) -> list[int] | list[str]:
        """As a service takes it: tokens as their text where there is other text."""
        return list(self.cutting(tokenizer)) if self.texts else list(self.tokens)

    def cutting(self, tokenizer: Any) -> tuple[str, ...]:
        """Text that is no part of a reply, nor is what follows it."""
        return (*self.texts, *(str(tokenizer.decode([token])) for token in self.tokens))

    def reached(self, tokens: Sequence[int], tokenizer: Any) -> int | None:
        """Return how many of these tokens there are up to the one that ends the reply; None if none
        does."""
        texts = self.cutting(tokenizer)

        def is_over(count: int) -> bool:
            text = tokenizer.decode(tokens[:count])
            return any(end in text for end in texts)

        upto = next((at + 1 for at, one in enumerate(tokens) if one in self.tokens), len(tokens))
        if not is_over(upto):
            return upto if upto and tokens[upto - 1] in self.tokens else None
        return bisect_left(range(upto), True, key=is_over)


@define(eq=False)
class StoppingHistory:
    """A history whose replies end with text, too. The renderer's own end of a turn goes on holding,
    and follows in later prompts where the text has ended the turn before it: a reply like that is
    complete. It was not sampled and is not trained on."""

    inner: PromptBuilder
    texts: tuple[str, ...]
    tokenizer: Any

    @property
    def stop(self) -> list[int] | list[str] | None:
        """The renderer's own."""
        return self.inner.stop

    @property
    def chunks(self) -> Chunks:
        return chunks_of(self.inner)

    @property
    def ends(self) -> Ends:
        """All that ends a reply."""
        own = [self.tokenizer.eos_token_id] if self.stop is None else self.stop
        texts = (*self.texts, *(end for end in own if isinstance(end, str)))
        return Ends(tuple(end for end in own if isinstance(end, int)), texts)

    def observe(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole next prompt."""
        return self.inner.observe(observation)

    def reply(self, tokens: list[int]) -> Action:
        """Record the sampled tokens; return the action for the environment."""
        ends = self.ends
        closed = not ends.tokens or any(one in ends.tokens for one in tokens[-1:])
        if closed or ends.reached(tokens, self.tokenizer) is None:
            return self.inner.reply(tokens)
        return self.inner.reply([*tokens, ends.tokens[0]])


def stop_of(history: PromptBuilder) -> list[int] | list[str] | None:
    """What ends a reply, as a service takes it."""
    if not isinstance(history, StoppingHistory):
        return history.stop
    return history.ends.stop(history.tokenizer)


def ended_reply(reply: types.SampledSequence, history: PromptBuilder) -> types.SampledSequence:
    """Return a reply up to its end. A service that takes no mark of a renderer for text may have
    sampled more than that."""
    if not isinstance(history, StoppingHistory):
        return reply
    return upto_end(reply, history.ends, history.tokenizer)


def upto_end(reply: types.SampledSequence, ends: Ends, tokenizer: Any) -> types.SampledSequence:
    """The same, of a reply with these ends."""
    import numpy as np

    count = ends.reached(reply.tokens, tokenizer)
    if count is None or (count == len(reply.tokens) and reply.stop_reason == "stop"):
        return reply
    topk = reply.topk_logprobs_np
    if topk is not None:
        topk = type(topk)(topk.token_ids[:count], topk.logprobs[:count])
    return type(reply)(
        "stop",
        reply.sequence_id,
        np.array(reply.tokens[:count], dtype=np.int32),
        None if reply.logprobs is None else np.array(reply.logprobs[:count], dtype=np.float32),
        topk,
    )
