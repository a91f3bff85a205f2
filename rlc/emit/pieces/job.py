"""What pieces read of their job: each script has these values of its own."""

from __future__ import annotations

SEED = 1
STAGE = "main"
CONTEXT: int | None = None  # tokens
RETRIES = 0  # of a failed episode
MAX_PROMPT_TOKENS: int | None = None
MAX_EPISODE_TOKENS: int | None = None
ADAM: dict[str, float] = {}
