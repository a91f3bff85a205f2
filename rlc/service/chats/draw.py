"""How replies are drawn."""

from __future__ import annotations

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
