"""Simulated delays of the server: drawn by seed, the same sequence every time."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Protocol

import numpy as np
from attrs import define, field, frozen

from rlc.service.errors import ServiceError
from rlc.service.local.sampling.random_streams import stream_key, uniforms


class Delay(Protocol):
    """A distribution of seconds, given as its quantile function."""

    def at(self, quantile: float) -> float: ...


@frozen
class Fixed:
    """Always the same."""

    seconds: float = 0.0

    def at(self, quantile: float) -> float:  # noqa: ARG002
        return self.seconds


@frozen
class LogNormal:
    """exp(N(ln median, sigma²)): roughly the time of a sampled text."""

    median: float
    sigma: float

    def at(self, quantile: float) -> float:
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(max(quantile, 1e-12)))


@frozen
class Pareto:
    """scale · U^(−1/alpha): stragglers without bound; no mean for alpha ≤ 1."""

    scale: float
    alpha: float

    def at(self, quantile: float) -> float:
        return self.scale * math.pow(1.0 - quantile, -1.0 / self.alpha)


@frozen
class Latency:
    """Seconds added to each answer of a kind, after the work is done."""

    sample: Delay = Fixed()
    train: Delay = Fixed()
    seed: int = 0


@define(eq=False)
class Dice:
    """Numbers in [0, 1), one stream for each name; number n of a stream is always the same."""

    seed: int
    _thrown: dict[str, int] = field(factory=dict, init=False)

    def throw(self, name: str) -> float:
        n = self._thrown.get(name, 0)
        self._thrown[name] = n + 1
        key = stream_key(self.seed, int.from_bytes(name.encode(), "little"))
        return float(uniforms(np.array([key], dtype=np.uint64), np.array([n], dtype=np.uint64))[0])


def parse_delay(text: str) -> Delay:
    """Parse a delay: ``0.5``, ``lognormal:0.5,1`` or ``pareto:0.2,1.5``. Raise ServiceError for
    anything else."""
    kind, _, rest = text.rpartition(":")
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    usable = bool(numbers) and all(math.isfinite(n) and n >= 0 for n in numbers)
    if usable and not kind and len(numbers) == 1:
        return Fixed(numbers[0])
    if usable and kind == "lognormal" and len(numbers) == 2:
        return LogNormal(*numbers)
    if usable and kind == "pareto" and len(numbers) == 2 and numbers[1] > 0:
        return Pareto(*numbers)
    raise ServiceError(
        f"`{text}` is not a delay: give a number of seconds, lognormal:MEDIAN,SIGMA or "
        "pareto:SCALE,ALPHA"
    )
