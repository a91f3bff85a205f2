"""Small requests to a service before the first step: does it compute what the plan asks for?

A server that ignores a setting, averages where it should sum, or draws all samples of a request
with the same random numbers would silently train something else. A few tokens reveal it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from rlc.algo import LOSSES, builtin_loss_and_grad
from rlc.catalog import LIKELIHOOD, loss_traits
from rlc.plan import LossPlan
from rlc.runtime.records import Turn, Usage
from rlc.runtime.updates.datums import TrainingDatum, episode_datums
from rlc.service import SamplingClient, ServiceError, TrainingClient

if TYPE_CHECKING:
    from tinker import types

FloatArray = npt.NDArray[np.float64]

_TEXT = "A few words, no more, will do to find out how this service counts what it is sent."
_LENGTHS = (9, 6)  # two datums of different lengths, which reveal a mean
_LEAST = max(_LENGTHS) + 1
# The server may sum in another precision; a wrong formula is further off than this.
_TOLERANCE = 0.01
_SAMPLES, _SAMPLE_TOKENS = 4, 8


@frozen
class LossProbe:
    """The loss that the service reported, the expected one, and the tokens used."""

    reported: float
    expected: float
    usage: Usage


async def probe_loss(training: TrainingClient, loss: LossPlan) -> LossProbe | None:
    """Compare the service's loss on two small datums with the local formula.

    The sampler's logprobs are placed around the trainer's own, so that ratios lie below, inside
    and above the clip range, with advantages of both signs. Nothing is trained: no gradient is
    asked for. Return None if there is no local formula of that name, or a recipe brings its own.

    Raises:
        ServiceError: the service computes something else, or refuses the loss.
    """
    if loss.program is not None or loss.name not in LOSSES:
        return None
    datums, usage = _datums(training.get_tokenizer()), Usage()
    if loss_traits(loss).recorded:
        datums = await _sampled_datums(training, usage)
    first = await _forward(training, datums, LIKELIHOOD)
    ratios = loss_traits(loss).ratios(loss.config)
    datums = [
        _aimed(datum, logprobs_T, ratios)
        for datum, logprobs_T, ratios in zip(datums, _logprobs(first), ratios, strict=True)
    ]
    second = await _forward(training, datums, loss)
    expected, size = _expected(loss, datums, _logprobs(second))
    reported = second.metrics.get("loss:sum", math.nan)
    if not abs(reported - expected) <= _TOLERANCE * size:
        raise ServiceError(
            f"the service does not compute `{loss.name}` as the plan says: on a probe it gives "
            f"{reported:.6g}, the formula {expected:.6g}",
            "choose another loss or service; nothing has been trained yet",
        )
    usage.trained = 2 * sum(len(datum.inputs) for datum in datums)
    return LossProbe(reported, expected, usage)


async def probe_seeds(sampler: SamplingClient, tokenizer: Any) -> tuple[bool, Usage]:
    """Return whether the samples of one seeded request differ, as they should, and the usage."""
    from tinker import types

    prompt = _tokens(tokenizer)
    params = types.SamplingParams(max_tokens=_SAMPLE_TOKENS, temperature=1.0, seed=1)
    response = await sampler.sample(types.ModelInput.from_ints(prompt), _SAMPLES, params)
    usage = Usage()
    usage.add_samples(len(prompt), _SAMPLES, response)
    return len({tuple(sequence.tokens) for sequence in response.sequences}) > 1, usage


async def probe_topk(sampler: SamplingClient, top_k: int, *, of_reply: bool) -> Usage:
    """Return the usage of asking for the most likely tokens, so many in each place of a prompt or,
    ``of_reply``, of what is sampled after it.

    Raises:
        ServiceError: the service does not give them, or not so many.
    """
    from tinker import types

    prompt, params = [1, 2, 3], types.SamplingParams(max_tokens=1, seed=0)  # in any vocabulary
    asked = types.ModelInput.from_ints(prompt)
    if of_reply:
        response = await sampler.sample(asked, 1, params, topk_sample_logprobs=top_k)
        topk, instead = response.sequences[0].topk_logprobs_np, "`samples()` without a `top_k`"
    else:
        response = await sampler.sample(asked, 1, params, True, top_k)
        topk, instead = response.topk_prompt_logprobs_np, "`reverse_kl()`"
    if topk is None:
        raise ServiceError(
            "the service does not say which tokens its models find most likely",
            f"{instead} needs the logprobs of sampled tokens alone; nothing has been trained",
        )
    return Usage(prefill=len(prompt), sampled=1)


def _tokens(tokenizer: Any) -> list[int]:
    tokens = list(tokenizer.encode(_TEXT))
    return (tokens * _LEAST)[: max(_LEAST, len(tokens))]


def _datums(tokenizer: Any) -> list[TrainingDatum]:
    """Return datums with a weight of 1 everywhere and without sampler's logprobs."""
    tokens = _tokens(tokenizer)
    return [
        TrainingDatum(
            inputs=tokens[:length],
            targets_T=np.asarray(tokens[1 : length + 1], dtype=np.int64),
            logprobs_T=np.zeros(length),
            advantages_T=np.ones(length),
            mask_T=np.ones(length, dtype=np.bool_),
        )
        for length in _LENGTHS
    ]


async def _sampled_datums(training: TrainingClient, usage: Usage) -> list[TrainingDatum]:
    """Return datums of recorded replies, which the loss can name."""
    from tinker import types

    sampler = await training.save_weights_and_get_sampling_client(record_stability_info=True)
    prompt, datums = _tokens(training.get_tokenizer()), list[TrainingDatum]()
    for length in _LENGTHS:
        params = types.SamplingParams(max_tokens=length, temperature=1.0, seed=length)
        response = await sampler.sample(types.ModelInput.from_ints(prompt), 1, params)
        (reply,) = response.sequences
        usage.add_samples(len(prompt), 1, response)
        turn = Turn(
            prompt,
            reply.tokens,
            reply.logprobs or [],
            "",
            "",
            None,
            reply.stop_reason,
            sequence_id=reply.sequence_id,
        )
        datums += episode_datums([turn], np.ones(1), np.ones(1, dtype=np.bool_))
    return datums


def _aimed(datum: TrainingDatum, logprobs_T: FloatArray, ratios: Sequence[float]) -> TrainingDatum:
    """Return the datum with sampler's logprobs that lead to these ratios.

    Each comes with a large advantage and with a small negative one, so that the sum does not
    vanish, and its sign and size are informative.
    """
    ratio_T = np.resize(np.asarray(ratios), len(logprobs_T))
    is_second_T = np.arange(len(logprobs_T)) // len(ratios) % 2 == 1
    return evolve(
        datum,
        logprobs_T=logprobs_T - np.log(ratio_T),
        advantages_T=np.where(is_second_T, -0.3, 1.0) * datum.mask_T,
    )


async def _forward(
    training: TrainingClient, datums: Sequence[TrainingDatum], loss: LossPlan
) -> types.ForwardBackwardOutput:
    data = [datum.to_tinker(loss) for datum in datums]
    return await training.forward(data, loss.name, loss.config or None)


def _logprobs(output: types.ForwardBackwardOutput) -> list[FloatArray]:
    return [np.asarray(o["logprobs"].to_numpy(), dtype=np.float64) for o in output.loss_fn_outputs]


def _expected(
    loss: LossPlan, datums: Sequence[TrainingDatum], logprobs_DT: Sequence[FloatArray]
) -> tuple[float, float]:
    """Return the loss by the local formula, from the service's logprobs, and its terms' size."""
    total = size = 0.0
    traits = loss_traits(loss)
    for datum, logprobs_T in zip(datums, logprobs_DT, strict=True):
        inputs: dict[str, npt.ArrayLike] = {"weights": datum.advantages_T}
        if traits.sampler_logprobs:
            inputs = {"logprobs": datum.logprobs_T, "advantages": datum.advantages_T}
        if traits.recorded:
            inputs["sampled"] = datum.mask_T
        total += builtin_loss_and_grad(loss.name, loss.config, logprobs_T, inputs)[0]
        size += float(np.abs(datum.advantages_T).sum())
    return total, max(size, abs(total))
