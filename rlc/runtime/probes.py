"""What a service is asked before the first step of a run: few tokens that reveal how it computes.

A server that ignores a setting, averages where it should sum, or samples all replies to a request
with the same random numbers would silently train something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from rlc.algo import LOSSES, builtin_loss_and_grad
from rlc.catalog import LIKELIHOOD, loss_traits
from rlc.plan import LossPlan
from rlc.runtime.records import Turn, Usage
from rlc.runtime.updates.datums import TrainingDatum, episode_datums
from rlc.service import (
    Conversation,
    Findings,
    Fresh,
    OptimStep,
    Pass,
    Request,
    Sample,
    SamplingClient,
    ServiceError,
    Snapshot,
    TrainingClient,
    find_ruler,
    gradient_sums,
    loss_gradient,
    older_sampler,
    step_sizes,
    trained_logprobs,
)

if TYPE_CHECKING:
    from tinker import types

_T = TypeVar("_T")

FloatArray = npt.NDArray[np.float64]

_TEXT = "A few words, no more, will do to find out how this service counts what it is sent."
_LENGTHS = (9, 6)  # two datums of different lengths, which reveal a mean
_LEAST = max(_LENGTHS) + 1
# The server may sum in another precision; a wrong formula is further off than this.
_TOLERANCE = 0.01
_SAMPLES, _SAMPLE_TOKENS = 4, 8


@frozen
class LossProbe:
    """The loss that the service reported, None if it reports none without a gradient; the expected
    one, and the tokens used."""

    reported: float | None
    expected: float
    usage: Usage


async def probe_loss(
    training: TrainingClient, loss: LossPlan, *, is_scratch: bool = False
) -> LossProbe | None:
    """Compare the service's loss on two small datums with the local formula, without a gradient.

    The sampler's logprobs are placed around the trainer's own, so that ratios lie below, inside
    and above the clip range, with advantages of both signs. If nobody needs the client
    (``is_scratch``), a pass with its gradient is asked where one without reports no loss. Return
    None if there is no local formula of that name, or the loss is a recipe's own. Raise
    ServiceError if the service computes something else, or refuses the loss.
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
        for datum, logprobs_T, ratios in zip(datums, trained_logprobs(first), ratios, strict=True)
    ]
    second, passes = await _forward(training, datums, loss), 2
    if "loss:sum" not in second.metrics and is_scratch:
        data, passes = [datum.to_tinker(loss) for datum in datums], 3
        second = await training.forward_backward(data, loss.name, loss.config or None)
        await training.optim_step(OptimStep(0.0).params)  # clears the gradient
    expected, size = _expected(loss, datums, trained_logprobs(second))
    usage.trained = passes * sum(len(datum.inputs) for datum in datums)
    if (reported := second.metrics.get("loss:sum")) is None:
        return LossProbe(None, expected, usage)
    if not abs(reported - expected) <= _TOLERANCE * size:
        raise ServiceError(
            f"the service does not compute `{loss.name}` as the plan says: on a probe it gives "
            f"{reported:.6g}, the formula {expected:.6g}",
            "choose another loss or service; nothing has been trained yet",
        )
    return LossProbe(reported, expected, usage)


async def probe_training(
    open_scratch: Callable[[], Awaitable[TrainingClient]],
    scratch: TrainingClient,
    loss: LossPlan,
    *,
    older: bool,
) -> tuple[Findings, Usage]:
    """Measure gradients, that of the loss among them, and steps on training clients whose weights
    nobody needs; with ``older``, too, whether a sampler of older weights leaves the trainer alone.
    Return what was found, and the usage."""
    usage = Usage()
    return await _carry_out(_training_probes(loss, older), scratch, open_scratch, usage), usage


def _training_probes(loss: LossPlan, older: bool) -> Conversation[Findings]:
    has_formula = loss.program is None and loss.name in LOSSES and not loss_traits(loss).recorded
    name, config = (loss.name, loss.config) if has_formula else (LIKELIHOOD.name, {})
    ruler, found = (yield from find_ruler()), Findings()
    if ruler is None:
        what = "the service reports no norm of gradients and ignores eps: they were not compared"
        found.notes.append(what)
    else:
        found.measures.extend((yield from gradient_sums(ruler)))
        found.measures.append((yield from loss_gradient(name, config, ruler)))
    if older:
        found = found.joined((yield from older_sampler()))
    return found.joined((yield from step_sizes(ruler)))


async def _carry_out(
    talk: Conversation[_T],
    client: TrainingClient,
    open_fresh: Callable[[], Awaitable[TrainingClient]],
    usage: Usage,
) -> _T:
    """Submit the requests of a conversation together, and return what it returns."""
    answers: list[Any] | None = None
    while True:
        try:
            requests = next(talk) if answers is None else talk.send(answers)
        except StopIteration as end:
            found: _T = end.value
            return found
        if Fresh() in requests:
            client = await open_fresh()
        answers = await asyncio.gather(*(_submit(client, one, usage) for one in requests))


def _submit(client: TrainingClient, request: Request, usage: Usage) -> Awaitable[Any]:
    match request:
        case Pass(data, loss, config, backward):
            usage.trained += request.tokens
            run = client.forward_backward if backward else client.forward
            return run(data, loss, config)
        case OptimStep():
            return client.optim_step(request.params)
        case Snapshot():
            return client.save_weights_and_get_sampling_client()
        case Sample(sampler):
            return _sample_once(sampler, usage)
        case Fresh():
            return asyncio.sleep(0)


async def _sample_once(sampler: SamplingClient, usage: Usage) -> None:
    prompt, params = _one_token()
    usage.add_samples(prompt.length, 1, await sampler.sample(prompt, 1, params))


def _one_token() -> tuple[types.ModelInput, types.SamplingParams]:
    """Return a prompt of any vocabulary, and parameters for one token after it."""
    from tinker import types

    return types.ModelInput.from_ints([1, 2, 3]), types.SamplingParams(max_tokens=1, seed=0)


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
    """Request the top-k tokens in each place of a prompt or, ``of_reply``, of a sampled reply, and
    return the usage. Raise ServiceError if the service does not report so many."""
    prompt, params = _one_token()
    if of_reply:
        response = await sampler.sample(prompt, 1, params, topk_sample_logprobs=top_k)
        topk, instead = response.sequences[0].topk_logprobs_np, "`samples()` without a `top_k`"
    else:
        response = await sampler.sample(prompt, 1, params, True, top_k)
        topk, instead = response.topk_prompt_logprobs_np, "`reverse_kl()`"
    if topk is None:
        raise ServiceError(
            "the service does not say which tokens its models find most likely",
            f"{instead} needs the logprobs of sampled tokens alone; nothing has been trained",
        )
    return Usage(prefill=prompt.length, sampled=1)


def _tokens(tokenizer: Any) -> list[int]:
    tokens = list(tokenizer.encode(_TEXT))
    return (tokens * _LEAST)[: max(_LEAST, len(tokens))]


def _datums(tokenizer: Any) -> list[TrainingDatum]:
    """Return datums with a weight of 1 everywhere and without sampler's logprobs."""
    tokens, found = _tokens(tokenizer), list[TrainingDatum]()
    for length in _LENGTHS:
        targets_T, ones_T = np.asarray(tokens[1 : length + 1], np.int64), np.ones(length)
        mask_T = ones_T.astype(np.bool_)
        found.append(TrainingDatum(tokens[:length], targets_T, np.zeros(length), ones_T, mask_T))
    return found


async def _sampled_datums(training: TrainingClient, usage: Usage) -> list[TrainingDatum]:
    """Return datums of recorded replies, which the loss refers to."""
    from tinker import types

    sampler = await training.save_weights_and_get_sampling_client(record_stability_info=True)
    prompt, datums = _tokens(training.get_tokenizer()), list[TrainingDatum]()
    for length in _LENGTHS:
        params = types.SamplingParams(max_tokens=length, temperature=1.0, seed=length)
        response = await sampler.sample(types.ModelInput.from_ints(prompt), 1, params)
        (reply,) = response.sequences
        usage.add_samples(len(prompt), 1, response)
        logprobs, name, end = reply.logprobs or [], reply.sequence_id, reply.stop_reason
        turn = Turn(prompt, reply.tokens, logprobs, "", "", None, end, sequence_id=name)
        datums += episode_datums([turn], np.ones(1), np.ones(1, dtype=np.bool_))
    return datums


def _aimed(datum: TrainingDatum, logprobs_T: FloatArray, ratios: Sequence[float]) -> TrainingDatum:
    """Return the datum with these ratios, each with a large and a small negative advantage."""
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


def _expected(
    loss: LossPlan, datums: Sequence[TrainingDatum], logprobs_DT: Sequence[FloatArray]
) -> tuple[float, float]:
    """Return the loss by the local formula, from the service's logprobs, and its terms' size."""
    total, size, traits = 0.0, 0.0, loss_traits(loss)
    config = {} if traits.usual_pull is None else {str(traits.pull): traits.usual_pull}
    config |= loss.config
    for datum, logprobs_T in zip(datums, logprobs_DT, strict=True):
        inputs: dict[str, npt.ArrayLike] = {"weights": datum.advantages_T}
        if traits.sampler_logprobs:
            inputs = {"logprobs": datum.logprobs_T, "advantages": datum.advantages_T}
        if traits.recorded:
            inputs["sampled"] = datum.mask_T
        total += builtin_loss_and_grad(loss.name, config, logprobs_T, inputs)[0]
        size += float(np.abs(datum.advantages_T).sum())
    return total, max(size, abs(total))
