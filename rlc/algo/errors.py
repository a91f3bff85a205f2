"""What the algorithms refuse."""

from __future__ import annotations


class AlgorithmError(ValueError):
    """Data or settings for which a formula has no value; the message says which and why."""
