"""How replies are drawn, and what ends them."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Draw:
    """How replies are drawn."""

    max_tokens: int | None = 512  # None: to the end of the context
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    n: int = 1  # replies
    top_k: int = -1
    stops: tuple[str, ...] = ()
    topk: int = 0  # of the likeliest tokens beside each sampled one
    scores_prompts: bool = False  # the same for the tokens of the prompts


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
