"""A moving average of returns, as a baseline (role-conditioned advantages, arXiv 2506.24119)."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum


def renewed(average: float, values: Sequence[float], decay: float) -> float:
    """Return a moving average after n more values: ``b <- d^n b + (1 - d^n) mean(values)``.

    One by one, as the paper takes them, ``b <- d b + (1 - d) x`` depends on their order; over all
    orders its mean is this, in which no value has more weight than another.
    """
    kept = decay ** len(values)
    return kept * average + (1 - kept) * (fsum(values) / len(values))
