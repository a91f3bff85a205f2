"""The small datums that a server is asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tinker import types

from rlc.algo.losses import LOSSES
from rlc.algo.ragged import Floats
from rlc.catalog.builtins.losses import LIKELIHOOD
from rlc.catalog.index import service_loss_traits, service_settings
from rlc.catalog.traits import LossTraits
from rlc.service.conform.ratios import ratios_of

# Token ids that every vocabulary has, in an order that means nothing: a model then spreads its
# probability, and a difference shows.
_IDS = [int(x) for x in np.random.default_rng(16).permutation(np.arange(40, 300))]
PROMPT = _IDS[:16]
LENGTHS = (12, 8)  # two datums of different lengths, which reveal a mean where a sum is due
_PULL = 0.1  # strength of a pull to the sampler, which has no default


def prompt(tokens: Sequence[int] = PROMPT) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def sequences() -> list[list[int]]:
    """Tokens of the datums: of each as many as it has targets, and one more."""
    return [_IDS[20 + 20 * i : 21 + 20 * i + length] for i, length in enumerate(LENGTHS)]


def likelihood(weights: Sequence[Floats] | None = None, scale: float = 1.0) -> list[types.Datum]:
    """Datums of the log-likelihood, with these weights or all of them ``scale``."""
    found = []
    for i, tokens in enumerate(sequences()):
        length = len(tokens) - 1
        weights_T = np.full(length, scale) if weights is None else weights[i] * scale
        found.append(datum(tokens, {"weights": weights_T}))
    return found


def datum(tokens: Sequence[int], inputs: Mapping[str, Floats]) -> types.Datum:
    """A datum that predicts each token from those before it."""
    arrays: dict[str, Any] = {"target_tokens": np.asarray(tokens[1:], dtype=np.int64)}
    arrays |= {key: np.asarray(array, dtype=np.float32) for key, array in inputs.items()}
    return types.Datum(prompt(tokens[:-1]), arrays)


def config_of(loss: str) -> dict[str, float]:
    """The settings of a loss: its defaults, and a strength where it has none."""
    return {key: _PULL if v is None else v for key, v in service_settings(loss).items()}


def inputs_of(loss: str, logprobs_T: Floats, which: int) -> dict[str, Floats]:
    """The inputs of the datum number ``which``, as the float32 that travel.

    The sampler's logprobs lie around the trainer's, ``logprobs_T``, such that there are ratios
    below, inside and above the clip range, with advantages of both signs and different sizes.
    """
    length = len(logprobs_T)
    traits = (
        LossTraits(sampler_logprobs=False) if loss == LIKELIHOOD.name else service_loss_traits(loss)
    )
    advantages_T = np.where(np.arange(length) // 4 % 2 == 1, -0.3, 1.0)
    if not traits.sampler_logprobs:
        inputs = {"weights": advantages_T}
    else:
        ratios = ratios_of(traits, config_of(loss))[which]
        ratio_T = np.resize(np.asarray(ratios), length)
        inputs = {"logprobs": logprobs_T - np.log(ratio_T), "advantages": advantages_T}
    if traits.per_sequence:
        inputs |= {key: np.full(length, value) for key, value in LOSSES[loss].optional.items()}
    return {key: array.astype(np.float32).astype(np.float64) for key, array in inputs.items()}


def recorded(sequence: types.SampledSequence, inputs: Mapping[str, Floats]) -> types.Datum:
    """A datum of `PROMPT` and a reply to it, which says where each of its tokens comes from."""
    known, reply, name = len(PROMPT), list(sequence.tokens), sequence.sequence_id
    return datum([*PROMPT, *reply], inputs).with_provenance(
        model_input=[
            types.PromptProvenanceSpan(sequence_id=name, length=known),
            *(
                [types.SampledProvenanceSpan(sequence_id=name, length=len(reply) - 1)]
                if len(reply) > 1
                else []
            ),
        ],
        loss_fn_inputs=[
            types.PromptProvenanceSpan(sequence_id=name, offset=1, length=known - 1),
            types.SampledProvenanceSpan(sequence_id=name, length=len(reply)),
        ],
    )
