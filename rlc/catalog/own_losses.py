"""What a recipe's own loss does and needs, from its expression."""

from __future__ import annotations

from functools import lru_cache

from rlc.algo import Program, degree, needs_batch, ratio_is_bounded, reads_trainer, unbounded
from rlc.catalog.traits import LossTraits


@lru_cache(maxsize=64)
def traits_of(program: Program) -> LossTraits:
    """Return the traits that the catalogue declares for the service's own losses.

    It takes stale rollouts if the weight of a token that is to become likelier stays bounded, as
    PPO's does.
    """
    inputs = program.inputs
    return LossTraits(
        takes_stale=ratio_is_bounded(program).positive,
        sampler_logprobs="logq" in inputs,
        reference="ref" in inputs,
        # What is computed over the batch takes the advantages as they are.
        weighted=degree(program).of != 1 or needs_batch(program),
        forward=reads_trainer(program),
        unbounded=unbounded(program),
    )
