"""The double of the engine is a service in earnest: what tests of runs count on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from plain_service import PlainService, PlainTrainingClient, open_plain
from tinker import types

import rlc.service.engine
from rlc.service.interface import ServiceClient, ServiceError

pytestmark = pytest.mark.plain

T = TypeVar("T")
PROMPT, REPLY = [40, 41, 42], [70, 71, 72, 73]


def with_service(path: Path, work: Callable[[PlainService], Awaitable[T]]) -> T:
    """Return what ``work`` makes with a new double."""

    async def main() -> T:
        return await work(service)

    with closing(open_plain(path)) as service:
        return asyncio.run(main())


async def tokens(client: PlainTrainingClient, prompt: list[int], seed: int) -> list[list[int]]:
    """Two replies to a prompt."""
    sampler = await client.save_weights_and_get_sampling_client()
    params = types.SamplingParams(max_tokens=12, seed=seed, stop=[])
    response = await sampler.sample(types.ModelInput.from_ints(prompt), 2, params)
    return [list(sequence.tokens) for sequence in response.sequences]


def datum(advantage: float = 1.0) -> types.Datum:
    text = [*PROMPT, *REPLY]
    arrays: dict[str, Any] = {
        "target_tokens": np.array(text[1:]),
        "logprobs": np.full(len(text) - 1, -5, dtype=np.float32),
        "advantages": np.full(len(text) - 1, advantage, dtype=np.float32),
    }
    return types.Datum(types.ModelInput.from_ints(text[:-1]), arrays)


async def step(client: PlainTrainingClient, rate: float = 0.1) -> dict[str, float]:
    """Train on one datum, and return the loss and the norm of its gradient."""
    output = client.forward_backward([datum()], "importance_sampling")
    stepped = await client.optim_step(types.AdamParams(learning_rate=rate))
    return {**(await output).metrics, **(stepped.metrics or {})}


def test_it_stands_in_for_the_engine_where_tests_want_it(tmp_path: Path) -> None:
    service: ServiceClient = rlc.service.engine.open_engine(tmp_path)
    assert isinstance(service, PlainService)
    service.close()


def test_replies_depend_on_prompt_seed_number_and_weights(tmp_path: Path) -> None:
    async def work(service: PlainService) -> None:
        client = await service.create_lora_training_client("tiny", rank=4)
        first = await tokens(client, PROMPT, 1)
        assert first == await tokens(client, PROMPT, 1)
        assert first[0] != first[1]
        assert first != await tokens(client, [39, *PROMPT[1:]], 1)
        assert first != await tokens(client, PROMPT, 2)
        await step(client, rate=1.0)
        assert first != await tokens(client, PROMPT, 1)

    with_service(tmp_path, work)


def test_the_gradient_is_that_of_the_loss(tmp_path: Path) -> None:
    async def loss(client: PlainTrainingClient) -> float:
        output = await client.forward([datum()], "importance_sampling")
        return float(output.metrics["loss:sum"])

    async def work(service: PlainService) -> None:
        client = await service.create_lora_training_client("tiny", rank=4)
        before = await loss(client)
        await client.forward_backward([datum()], "importance_sampling")
        assert client.gradient is not None
        norm = float(np.linalg.norm(client.gradient))
        client.weights = client.weights - 1e-3 / norm * client.gradient
        assert await loss(client) - before == pytest.approx(-1e-3 * norm, rel=0.02)

    with_service(tmp_path, work)


def test_a_saved_state_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    async def work(service: PlainService) -> None:
        client = await service.create_lora_training_client("tiny", rank=4)
        await step(client)
        path = (await client.save_state("s")).path
        again = await service.create_training_client_from_state_with_optimizer(path)
        fresh = await service.create_training_client_from_state(path)
        for one in (client, again, fresh):
            await step(one)
        assert np.array_equal(client.weights, again.weights)
        assert not np.array_equal(client.weights, fresh.weights)  # Adam started afresh
        await service.delete_checkpoint(path)
        with pytest.raises(ServiceError, match="no checkpoint"):
            await service.create_training_client_from_state(path)

    with_service(tmp_path, work)
