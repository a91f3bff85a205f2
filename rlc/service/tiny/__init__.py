"""The tiny chat model that ships in the package; see MODEL_CARD.md for what it is and is not."""

from __future__ import annotations

from pathlib import Path


def path() -> Path:
    """The Hugging Face folder with the model's configuration, weights and tokenizer."""
    return Path(__file__).parent / "weights"
