"""Logprobs of a reference model, for a penalty on the distance from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define, evolve

from rlc.envs.chunks import model_input
from rlc.plan.records import TrainPlan
from rlc.runtime.concurrency import all_of
from rlc.runtime.guard.meter import Meter
from rlc.runtime.journal.database import Journal
from rlc.runtime.records import Rollout, Usage
from rlc.runtime.stages.weights import open_sampler
from rlc.runtime.updates.datums import FloatArray, TokenSequence, merged_sequences
from rlc.service.interface import SamplingClient, ServiceClient


@define
class ReferenceModel:
    """Asks another model for logprobs; ``meter`` counts the tokens sent, at that model's price."""

    client: SamplingClient
    meter: Meter

    async def logprobs(self, step: int, rollouts: Sequence[Rollout]) -> list[list[FloatArray]]:
        """Return the logprobs of each rollout's merged sequences, from the second token on."""
        usage = self.meter.running[step]
        return await all_of(
            all_of(self._of_sequence(sequence, usage) for sequence in merged_sequences(r.turns))
            for r in rollouts
        )

    async def _of_sequence(self, sequence: TokenSequence, usage: Usage) -> FloatArray:
        prompt = model_input(sequence.tokens, sequence.chunks)
        logprobs = await self.client.compute_logprobs(prompt)
        usage.prefill += len(sequence.tokens)
        # What is not text has no logprob.
        values = [0.0 if logprob is None else logprob for logprob in logprobs[1:]]
        return np.array(values, dtype=np.float64)


async def open_reference(
    service: ServiceClient, journal: Journal, stage: TrainPlan
) -> ReferenceModel | None:
    """Open the reference of a stage, if it has one: a base model, or the URL of a saved state.

    A saved state is taken to be of the same base as the stage's model.
    """
    if stage.kl is None:
        return None
    reference, model = stage.kl.reference, stage.model
    if "://" in reference:
        model = evolve(model, weights=reference)
    else:
        model = evolve(model, base=reference, weights=None)
    client = await open_sampler(service, model)
    return ReferenceModel(client, Meter(journal, stage.name, model))
