"""Where a server's loss is tried: ratios of the trainer's and the sampler's probabilities."""

from __future__ import annotations

from collections.abc import Mapping

from rlc.catalog.traits import LossTraits


def ratios_of(traits: LossTraits, config: Mapping[str, float]) -> tuple[list[float], list[float]]:
    """Return ratios for the tokens of two datums: below, inside and above the clip range.

    They lie around 1 if the loss does not clip. If a sequence has one ratio, one datum is below and
    the other above.
    """
    low, high = config.values() if traits.clip else (0.8, 1.2)
    below, above = low / 2 if low > 0 else 0.25, high * 1.5
    if traits.per_sequence:
        return [below], [above]
    ratios = [below, (low + high) / 2, 1.0, above]
    return ratios, ratios[::-1]
