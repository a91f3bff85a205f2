"""What pieces read of their job: each script has these values of its own."""

from __future__ import annotations

SEED = 1
STAGE = "main"
CONTEXT: int | None = None  # tokens
SAMPLING: dict[str, float] = {}  # what all environments share: top_p, top_k
RETRIES = 0  # of a failed episode
STOPS = False  # the run, where no retry has helped
MAX_PROMPT_TOKENS: int | None = None
MAX_EPISODE_TOKENS: int | None = None
BATCH = 1  # examples of a step
BETA = 0.1
