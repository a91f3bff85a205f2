"""Learning rates over the steps."""

from __future__ import annotations

from math import cos, pi


def warmed_up(rate: float, step: int, warmup: int) -> float:
    """The learning rate of a step, from 1: up to ``rate`` in ``warmup`` steps."""
    return rate * step / warmup if step < warmup else rate


def linear(rate: float, step: int, steps: int, warmup: int, floor: float) -> float:
    """The learning rate of a step: up to ``rate`` in ``warmup`` steps, then evenly down
    towards ``floor`` times that."""
    if step < warmup:
        return rate * step / warmup
    start = max(warmup, 1)
    done = (step - start) / (steps + 1 - start)
    return rate * (1 - (1 - floor) * done)


def cosine(rate: float, step: int, steps: int, warmup: int, floor: float) -> float:
    """The learning rate of a step: up to ``rate`` in ``warmup`` steps, then along half
    a wave down towards ``floor`` times that."""
    if step < warmup:
        return rate * step / warmup
    start = max(warmup, 1)
    done = (step - start) / (steps + 1 - start)
    return rate * (floor + (1 - floor) * (1 + cos(pi * done)) / 2)
