"""A run on a remote service: probed before the first step, recorded, closed at the end.

A server that ignores a setting, averages where it should sum, or samples all replies to a request
with the same random numbers would silently train something else. A few tokens reveal it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, field, frozen

from rlc.algo import LOSSES, builtin_loss_and_grad
from rlc.catalog import LIKELIHOOD, loss_traits, service_loss
from rlc.plan import LossPlan, ModelPlan, Plan, StagePlan, Training
from rlc.runtime.journal.database import PROBES, Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Turn, Usage
from rlc.runtime.updates.datums import TrainingDatum, episode_datums
from rlc.service import (
    RemoteService,
    SamplingClient,
    ServiceError,
    TrainingClient,
    smaller_contexts,
)

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
    """Compare the service's loss on two small datums with the local formula, without a gradient.

    The sampler's logprobs are placed around the trainer's own, so that ratios lie below, inside
    and above the clip range, with advantages of both signs. Return None if there is no local
    formula of that name, or the loss is a recipe's own. Raise ServiceError if the service computes
    something else, or refuses the loss.
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
    """Request the top-k tokens in each place of a prompt or, ``of_reply``, of a sampled reply, and
    return the usage. Raise ServiceError if the service does not report so many."""
    from tinker import types

    prompt, params = [1, 2, 3], types.SamplingParams(max_tokens=1, seed=0)  # in any vocabulary
    tokens = types.ModelInput.from_ints(prompt)
    if of_reply:
        response = await sampler.sample(tokens, 1, params, topk_sample_logprobs=top_k)
        topk, instead = response.sequences[0].topk_logprobs_np, "`samples()` without a `top_k`"
    else:
        response = await sampler.sample(tokens, 1, params, True, top_k)
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


def _logprobs(output: types.ForwardBackwardOutput) -> list[FloatArray]:
    return [np.asarray(o["logprobs"].to_numpy(), dtype=np.float64) for o in output.loss_fn_outputs]


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


SERVICE_FILE = "service.jsonl"

S = TypeVar("S", bound=StagePlan)


@define(eq=False)
class RemoteSession:
    """The session of a run on a remote service, and its ``Listener``."""

    service: RemoteService
    folder: RunFolder
    note: Callable[[str], None]
    pressed: Callable[[], None]
    _contexts: dict[str, int] = field(factory=dict, init=False)
    _seeds_probed: bool = field(default=False, init=False)

    async def open(self, plan: Plan) -> None:
        """Compare the plan with what the service currently offers. Raise ServiceError if that is
        not enough."""
        self.folder.journal.set_meta(server=self.service.server)
        self.service.listen(self)
        answer = await self.service.get_server_capabilities()
        self._contexts = smaller_contexts(plan, answer.supported_models, self.service.server)
        planned = {stage.model.base: stage.model.context for stage in plan.stages}
        for base, context in self._contexts.items():
            less = ", less than the plan counts on" if planned[base] is not None else ""
            self.note(
                f"the service has {context:,} tokens of context for `{base}`{less}; an episode "
                "that needs more ends there"
            )
        probed = set[tuple[str, int, bool]]()  # top-k tokens that are learnt
        for one in plan.stages:
            for model, top_k, of_reply in _soft_targets(one):
                if (model.base, top_k, of_reply) in probed:
                    continue
                if await self.service.is_rlc():
                    return
                probed.add((model.base, top_k, of_reply))
                sampler = await self.service.create_sampling_client(base_model=model.base)
                used = await probe_topk(sampler, top_k, of_reply=of_reply)
                Meter(self.folder.journal, one.name, model).add(PROBES, used)

    def with_served_context(self, stage: S) -> S:
        """Return the stage with the context length that the service offers."""
        context = self._contexts.get(stage.model.base, stage.model.context)
        return evolve(stage, model=evolve(stage.model, context=context))

    async def verify(self, stage: Training, training: TrainingClient, meter: Meter) -> None:
        """Probe the loss of a stage and, once, the seeds of samples; meter the tokens used. Raise
        ServiceError if the service does not compute the loss of the plan."""
        loss = service_loss(stage)
        published = loss_traits(loss).published or await self.service.is_rlc()
        probe = await probe_loss(training, loss) if published else None
        if not published:
            self.note(
                f"`{loss.name}` is not compared with the service's, whose definition of it is not "
                "published"
            )
        elif probe is None and loss.program is None:
            self.note(f"`{loss.name}` is not compared with the service's: no local formula")
        elif probe is not None:
            meter.add(PROBES, probe.usage)
            record = {"event": "loss probe", "stage": stage.name, "loss": loss.name}
            self.record(record | {"told": probe.reported, "expected": probe.expected})
        rollouts = stage.rollouts
        if self._seeds_probed or rollouts is None:
            return
        if max(rollouts.batch.size, *(env.rollouts.group for env in rollouts.envs)) <= 1:
            return
        sampler = await training.save_weights_and_get_sampling_client()
        distinct, used = await probe_seeds(sampler, training.get_tokenizer())
        meter.add(PROBES, used)
        if not distinct:
            self.service.separate_samples()
            self.note(
                "the service repeats the samples of a seeded request; each is asked for alone, "
                "with a seed of its own"
            )
        self.record({"event": "seed probe", "distinct": distinct})
        self._seeds_probed = True

    def record(self, event: dict[str, Any]) -> None:
        """Write an event of the service to the run folder, with ids to reconcile a bill."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.folder.append(SERVICE_FILE, [{"time": now, **event}])


def _soft_targets(stage: StagePlan) -> Iterator[tuple[ModelPlan, int, bool]]:
    """Yield each model whose top-k tokens are learnt, their number, and whether of replies."""
    for teacher in stage.policy_gradient.teacher if stage.policy_gradient else ():
        if teacher.top_k is not None:
            yield teacher.model.model, teacher.top_k, False
    for data in stage.data:
        if data.soft_targets is not None:
            state, top_k = data.soft_targets
            yield state.model, top_k, True
