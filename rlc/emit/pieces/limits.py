"""What ends an episode beside its environment"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlc.emit.pieces.datums import joined
from rlc.emit.pieces.job import CONTEXT, MAX_EPISODE_TOKENS, MAX_PROMPT_TOKENS
from rlc.emit.pieces.records import Turn


def is_too_long(prompt: list[Any], played: Sequence[Turn], reply: Any) -> bool:
    """Whether another reply could exceed the model's context, or a limit of the recipe."""
    whole = sum(len(tokens) for tokens, *_ in joined([*played, Turn(prompt, [], [], 0.0)]))
    used = (len(prompt) + reply, len(prompt), whole + reply)
    most = (CONTEXT, MAX_PROMPT_TOKENS, MAX_EPISODE_TOKENS)
    return any(limit is not None and n > limit for n, limit in zip(used, most, strict=True))
