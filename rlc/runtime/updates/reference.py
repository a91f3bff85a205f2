"""Logprobs of a reference model, for a penalty on the distance from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define

from rlc.envs.chunks import model_input
from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout, Usage
from rlc.runtime.updates.datums import FloatArray, TokenSequence, merged_sequences
from rlc.service.interface import SamplingClient, ServiceClient


async def reference_client(service: ServiceClient, reference: str) -> SamplingClient:
    """Return a client on a base model, or on the weights at the URL of a saved state."""
    if "://" not in reference:
        return await service.create_sampling_client(base_model=reference)
    if "/sampler_weights/" in reference:
        return await service.create_sampling_client(model_path=reference)
    training = await service.create_training_client_from_state(reference)
    return await training.save_weights_and_get_sampling_client()


@define
class ReferenceModel:
    """Asks another model for logprobs, and counts the tokens sent."""

    client: SamplingClient
    usage: Usage

    async def logprobs(self, rollouts: Sequence[Rollout]) -> list[list[FloatArray]]:
        """Return the logprobs of each rollout's merged sequences, from the second token on."""
        return await all_of(
            all_of(map(self._of_sequence, merged_sequences(rollout.turns))) for rollout in rollouts
        )

    async def _of_sequence(self, sequence: TokenSequence) -> FloatArray:
        prompt = model_input(sequence.tokens, sequence.chunks)
        logprobs = await self.client.compute_logprobs(prompt)
        self.usage.prefill += len(sequence.tokens)
        # What is not text has no logprob.
        values = [0.0 if logprob is None else logprob for logprob in logprobs[1:]]
        return np.array(values, dtype=np.float64)
