"""The same calls, in this process and through the SDK over HTTP, give the same numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from engine_tinker import FAULTS, MODEL, EngineTinker, engine_tinker
from tinker import types

from rlc.chat.histories import Ends
from rlc.service.engine import open_engine
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.service import HostedService
from rlc.service.interface import SamplingClient, ServiceClient, TrainingClient

pytestmark = pytest.mark.server

ADAM = types.AdamParams(learning_rate=3e-3, weight_decay=0.01, grad_clip_norm=1.0)
LOSSES: dict[str, dict[str, float | str] | None] = {
    "cross_entropy": None,
    "importance_sampling": None,
    "ppo": {"clip_low_threshold": 0.7, "clip_high_threshold": 1.1},
    "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 2.0},
    "dro": {"beta": 0.1},
}
Talk = Callable[[ServiceClient, str], Awaitable[Any]]


def hosted(server: EngineTinker, talk: Talk) -> Any:
    async def run() -> Any:
        service = HostedService(Endpoint(server.url, "tml-test"))
        try:
            return await talk(service, MODEL)
        finally:
            await service.close("success")

    return asyncio.run(run())


def embedded(root: Path, talk: Talk) -> Any:
    async def run() -> Any:
        service = open_engine(root, threads=1)
        try:
            return await talk(service, "tiny")
        finally:
            service.close()

    return asyncio.run(run())


async def create(service: ServiceClient, base: str) -> TrainingClient:
    return await service.create_lora_training_client(base, rank=4, seed=7, train_attn=False)


async def draw(sampler: SamplingClient, prompt: list[int]) -> types.SampleResponse:
    params = types.SamplingParams(max_tokens=8, temperature=0.9, top_p=0.95, seed=11)
    return await sampler.sample(types.ModelInput.from_ints(prompt), 4, params)


def numbers(response: types.SampleResponse) -> list[Any]:
    """Tokens and logprobs, as the float32 that travel."""
    return [numbers_of(sequence) for sequence in response.sequences]


def numbers_of(sequence: types.SampledSequence) -> Any:
    logprobs = np.asarray(sequence.logprobs, dtype=np.float32).tolist()
    return list(sequence.tokens), logprobs, sequence.stop_reason


def datum(prompt: list[int], sequence: types.SampledSequence, loss: str, sign: float) -> Any:
    tokens = [*prompt, *sequence.tokens]
    known = len(prompt) - 1
    assert sequence.logprobs is not None
    advantages = np.array([0.0] * known + [sign] * len(sequence.tokens), dtype=np.float32)
    logprobs = np.array([0.0] * known + list(sequence.logprobs), dtype=np.float32)
    arrays = {"target_tokens": np.array(tokens[1:], dtype=np.int64)}
    if loss == "cross_entropy":
        arrays["weights"] = advantages  # type: ignore[assignment]
    else:
        arrays |= {"logprobs": logprobs, "advantages": advantages}  # type: ignore[dict-item]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={name: types.TensorData.from_numpy(a) for name, a in arrays.items()},
    )


async def step(training: TrainingClient, loss: str, prompt: list[int]) -> list[Any]:
    """Sample, then gradient and update in the same breath: everything that comes back."""
    response = await draw(await training.save_weights_and_get_sampling_client(), prompt)
    data = [
        datum(prompt, sequence, loss, 1.0 if i % 2 else -0.5)
        for i, sequence in enumerate(response.sequences)
    ]
    gradient = training.forward_backward(data, loss, LOSSES[loss])
    update = training.optim_step(ADAM)
    output, told = await asyncio.gather(gradient, update)
    logprobs = [row["logprobs"].to_numpy().tolist() for row in output.loss_fn_outputs]
    return [numbers(response), logprobs, output.metrics, told.metrics]


async def train(service: ServiceClient, base: str) -> Any:
    """Two steps with each loss, a checkpoint, two more from it and two without it."""
    training = await create(service, base)
    prompt = list(training.get_tokenizer().encode("2 + 3 = "))
    told = [await step(training, loss, prompt) for loss in LOSSES for _ in range(2)]
    path = (await training.save_state("half", overwrite=True)).path
    onward = [await step(training, "ppo", prompt) for _ in range(2)]
    again = await service.create_training_client_from_state_with_optimizer(path)
    resumed = [await step(again, "ppo", prompt) for _ in range(2)]
    await service.delete_checkpoint(path)
    return told, onward, resumed


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return embedded(tmp_path_factory.mktemp("embedded"), train)


def test_training_is_the_same_to_the_last_bit(tmp_path: Path, expected: Any) -> None:
    with engine_tinker(tmp_path) as server:
        assert hosted(server, train) == expected


def test_a_restored_state_goes_on_as_the_saved_one(expected: Any) -> None:
    _, onward, resumed = expected
    assert resumed == onward


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_change_nothing(tmp_path: Path, expected: Any, seed: int) -> None:
    """5 % of the requests each refused, failed, cut off before or after the work, or slow."""
    with engine_tinker(tmp_path, evolve(FAULTS, seed=seed)) as server:
        assert hosted(server, train) == expected
        assert all(server.answers[kind] > 0 for kind in (429, 500, "dropped"))


def test_the_reference_is_asked_for_its_logprobs(tmp_path: Path) -> None:
    async def score(service: ServiceClient, base: str) -> Any:
        sampler = await service.create_sampling_client(base_model=base)
        prompt = types.ModelInput.from_ints([5, 6, 7, 8, 9])
        told = await sampler.compute_logprobs(prompt)
        return [None if x is None else float(np.float32(x)) for x in told]

    with engine_tinker(tmp_path / "a") as server:
        told = hosted(server, score)
    assert told[0] is None
    assert told == embedded(tmp_path / "b", score)


def test_a_reply_ends_at_the_same_text_everywhere(tmp_path: Path) -> None:
    """Up to its end it is the reply that the same seed draws without one, wherever it is drawn."""

    async def talk(service: ServiceClient, base: str) -> list[Any]:
        training = await create(service, base)
        tokenizer = training.get_tokenizer()
        sampler = await training.save_weights_and_get_sampling_client()
        prompt = types.ModelInput.from_ints(tokenizer.encode("Spell this word backward: told"))
        own, told = int(tokenizer.eos_token_id), []

        async def reply(seed: int, stop: list[str]) -> types.SampledSequence:
            params = types.SamplingParams(max_tokens=24, seed=seed, stop=stop)
            return (await sampler.sample(prompt, 1, params)).sequences[0]

        for seed in range(2):
            whole = await reply(seed, ["<|im_end|>"])
            text = str(tokenizer.decode(whole.tokens))
            for texts in ((text[2:4], text[-3:]), ("\n\n\n",)):
                ends = Ends((own,), texts)
                cut = await reply(seed, list(ends.cutting(tokenizer)))
                upto = ends.reached(whole.tokens, tokenizer)
                assert cut.tokens == whole.tokens[:upto]
                assert cut.stop_reason == ("length" if upto is None else "stop")
                assert whole.logprobs is not None
                assert cut.logprobs is not None
                assert cut.logprobs == pytest.approx(whole.logprobs[:upto], rel=1e-5, abs=1e-6)
                told.append(numbers_of(cut))
        return told

    with engine_tinker(tmp_path) as server:
        assert hosted(server, talk) == embedded(tmp_path / "embedded", talk)


def test_snapshots_leave_no_checkpoint_behind(tmp_path: Path) -> None:
    async def snapshot(service: ServiceClient, base: str) -> None:
        training = await create(service, base)
        for _ in range(3):
            await draw(await training.save_weights_and_get_sampling_client(), [5, 6])

    with engine_tinker(tmp_path) as server:
        hosted(server, snapshot)
        assert len(server.asked("save_weights_for_sampler")) == 3
        assert server.checkpoints() == []
