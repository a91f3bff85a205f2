"""Learning rates over the steps of a stage."""

from __future__ import annotations

from math import cos, pi


def learning_rate(
    kind: str, rate: float, step: int, steps: int, warmup: int = 0, floor: float = 1.0
) -> float:
    """Return the learning rate of ``step`` (1-based) out of ``steps``.

    It rises in equal parts to the full rate at step ``warmup``, and is then constant, or falls
    (``linear``, or ``cosine``: arXiv 1608.03983) towards ``floor * rate``, which the step after the
    last one would have, so that every step learns. Without a warm-up and a floor these are
    the schedules of tinker-cookbook 0.5.8.

    Raises:
        ValueError: another kind.
    """
    if step < warmup:
        return rate * step / warmup
    if kind == "constant":
        return rate
    start = max(warmup, 1)
    done = (step - start) / (steps + 1 - start)
    if kind == "linear":
        return rate * (1 - (1 - floor) * done)
    if kind == "cosine":
        return rate * (floor + (1 - floor) * (1 + cos(pi * done)) / 2)
    raise ValueError(f"there is no learning-rate schedule {kind!r}")
