"""From tokens to dollars."""

from __future__ import annotations

from typing import Protocol

from rlc.catalog.facts.models import FREE, Price, find_model

_MILLION = 1e6


class TokenCounts(Protocol):
    """Tokens by the kinds that a service bills."""

    prefill: int
    cached: int
    sampled: int
    trained: int


def price_of(base: str, service: str) -> Price | None:
    """The prices of a model on a service; None if nothing is known of them."""
    if service == "local":
        return FREE
    model = find_model(base)
    return model.price if model else None


def dollars(base: str, usage: TokenCounts) -> float | None:
    """The cost of what was used, in USD; None if a price that it needs is unknown."""
    model = find_model(base)
    price = model.price if model else FREE  # a model outside the catalogue runs locally
    parts = (
        part_cost(usage.prefill, price.prefill),
        part_cost(usage.cached, price.cached),
        part_cost(usage.sampled, price.sample),
        part_cost(usage.trained, price.train),
    )
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def part_cost(tokens: float, price: float | None) -> float | None:
    """No tokens cost nothing, also at an unknown price."""
    if tokens == 0:
        return 0.0
    return None if price is None else tokens * price / _MILLION
