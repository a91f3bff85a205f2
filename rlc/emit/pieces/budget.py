"""What a run may spend."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlc.emit.pieces.records import Usage


@dataclass
class Budget:
    """What a run may spend. It ends before a step that, like the last one, would exceed
    it."""

    usd: float | None = None
    prices: Sequence[float] = (
        0,
        0,
        0,
        0,
    )  # USD per million tokens, as ``Usage`` counts
    tokens: int | None = None
    seconds: float | None = None
    before: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    started: float = field(default_factory=time.monotonic)

    def is_spent(self, usage: Usage) -> bool:
        now, before = usage.counts(), self.before
        self.before = now
        next_usd = 2 * self.cost(now) - self.cost(before)
        return (
            (self.usd is not None and next_usd > self.usd)
            or (self.tokens is not None and 2 * sum(now) - sum(before) > self.tokens)
            or (
                self.seconds is not None
                and time.monotonic() - self.started > self.seconds
            )
        )

    def cost(self, counts: Sequence[int]) -> float:
        paired = zip(counts, self.prices, strict=True)
        return sum(count * price for count, price in paired) / 1e6
