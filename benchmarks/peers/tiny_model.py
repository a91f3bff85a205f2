"""The included model, by the name that the server has for it, for the cookbook's own programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tinker_cookbook.tokenizer_utils import register_tokenizer

WEIGHTS = str(Path(__file__).parents[2] / "rlc/service/tiny/weights")


def register() -> None:
    """Let the cookbook find its tokenizer; and let the SDK run without a key, and tell nobody."""
    os.environ |= {"TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}

    def tiny() -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(WEIGHTS)

    register_tokenizer("tiny", tiny)
