"""The steps of a run on SkyRL's server, computed again by the embedded engine.

A run is recorded: the adapter before each step, samples with their logprobs, greedy replies to some
of the prompts, the passes with their losses, and the norm of the gradient. Each step is then
computed by the embedded engine on that adapter, so that no step inherits the differences of those
before it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from attrs import define, field, frozen
from tinker import types

from rlc.service.engine import open_engine
from rlc.service.hosted.clients import HostedSamplingClient, HostedTrainingClient
from rlc.service.interface import MappedAwaitable

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from skyrl_adapters import tied_norm, unpacked

_SAMPLES = 16  # of a step, whose logprobs are compared, and whose prompts are answered greedily


@define
class Sampled:
    prompt: types.ModelInput
    params: types.SamplingParams
    tokens: list[int]
    logprobs: list[float]
    greedy: list[int]


@define
class Step:
    """What a step was made of, and what the server said."""

    adapter: str = ""
    samples: list[Sampled] = field(factory=list)
    passes: list[tuple[Any, ...]] = field(factory=list)
    losses: list[float] = field(factory=list)
    norm: float = 0.0


@frozen
class Difference:
    """By how much a step differs: the largest of its samples' logprobs, its loss and the norm of
    its gradient relative to their values, and how many of the greedy replies are the same."""

    logprob: float
    loss: float
    norm: float
    same: int
    replies: int


@contextmanager
def recorded() -> Iterator[list[Step]]:
    """Record the steps of the training clients of this process; the last one may be unfinished."""
    steps = [Step()]
    sample, passed = HostedSamplingClient.sample, HostedTrainingClient.forward_backward
    optim_step = HostedTrainingClient.optim_step

    async def answered(client: Any, step: Step, given: Sequence[Any]) -> types.SampleResponse:
        prompt, _, params, *_ = given
        answer = await sample(client, *given)
        if len(step.samples) < _SAMPLES:
            first = answer.sequences[0]
            one = Sampled(prompt, params, list(first.tokens), list(first.logprobs or ()), [])
            step.samples.append(one)
            greedy = params.model_copy(update={"temperature": 0.0})
            one.greedy = list((await sample(client, prompt, 1, greedy)).sequences[0].tokens)
        return answer

    def sample_and_record(client: Any, *given: Any) -> Any:
        return asyncio.ensure_future(answered(client, steps[-1], given))

    def pass_and_record(client: Any, data: Any, loss: str, config: Any = None) -> Any:
        step, number = steps[-1], len(steps)
        if not step.passes:
            # The SDK numbers a named save when it gets to it, which may be after the pass.
            client.sdk.save_weights_for_sampler(f"replay{number}").future().result()
            step.adapter = f"tinker://{client.sdk.model_id}/sampler_weights/replay{number}"
        step.passes.append((data, loss, config))

        def told(output: types.ForwardBackwardOutput) -> types.ForwardBackwardOutput:
            step.losses.append(output.metrics["loss:sum"])
            return output

        return MappedAwaitable(passed(client, data, loss, config), told)

    def step_and_record(client: Any, params: types.AdamParams) -> Any:
        step = steps[-1]
        steps.append(Step())

        def told(answer: types.OptimStepResponse) -> types.OptimStepResponse:
            step.norm = (answer.metrics or {})["grad_norm"]
            return answer

        return MappedAwaitable(optim_step(client, params), told)

    with (
        patch.object(HostedSamplingClient, "sample", sample_and_record),
        patch.object(HostedTrainingClient, "forward_backward", pass_and_record),
        patch.object(HostedTrainingClient, "optim_step", step_and_record),
    ):
        yield steps


async def differences(steps: Sequence[Step], checkpoints: Path, folder: Path) -> list[Difference]:
    """Compute the steps again, on the adapters in the server's folder of checkpoints: those of the
    model that was trained last, without those of probes."""
    engine = open_engine(folder / "engine", "cpu", threads=1)
    made = [step for step in steps if step.adapter]
    model = made[-1].adapter.partition("sampler_weights")[0]
    try:
        return [
            await _difference(engine, step, unpacked(checkpoints, step.adapter, folder))
            for step in made
            if step.adapter.startswith(model)
        ]
    finally:
        engine.close()


async def _difference(engine: Any, step: Step, adapter: Path) -> Difference:
    training = await engine.create_training_client_from_adapter(str(adapter), "tiny")
    sampler = await training.save_weights_and_get_sampling_client()
    logprobs, same = [0.0], 0
    for one in step.samples:
        whole = [*one.prompt.to_ints(), *one.tokens]
        ours = (await sampler.compute_logprobs(types.ModelInput.from_ints(whole)))[
            one.prompt.length :
        ]
        logprobs.append(float(np.abs(np.subtract(ours, one.logprobs)).max()))
        greedy = one.params.model_copy(update={"temperature": 0.0})
        reply = (await sampler.sample(one.prompt, 1, greedy)).sequences[0]
        same += list(reply.tokens) == one.greedy
    outputs = [await training.forward_backward(*given) for given in step.passes]
    ours, theirs = sum(one.metrics["loss:sum"] for one in outputs), sum(step.losses)
    norm = tied_norm(training)
    return Difference(
        max(logprobs),
        abs(ours / theirs - 1),
        abs(step.norm / norm - 1),
        same,
        len(step.samples),
    )
