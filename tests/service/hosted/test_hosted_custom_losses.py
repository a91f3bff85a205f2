"""Custom losses through the runtime's interface, where the server computes them and where not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from attrs import evolve
from engine_tinker import FAULTS, MODEL, engine_tinker
from loss_functions import WRITTEN, as_custom, data_for
from tinker import types
from torch import Tensor

from rlc.runtime.service_guard import ServiceGuard
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.service import HostedService
from rlc.service.interface import ServiceClient, ServiceError, ServiceLostError
from rlc.service.server.faults import Faults

pytestmark = pytest.mark.server

T = TypeVar("T")
PPO = WRITTEN["ppo"]


def unfitting(logprobs: Tensor) -> Any:
    return logprobs[:, 0].sum(), {}


def talk(
    root: Path,
    main: Callable[[ServiceClient], Awaitable[T]],
    on_server: bool = True,
    faults: Faults = Faults(),  # noqa: B008 (immutable)
) -> T:
    async def run(url: str) -> T:
        service = HostedService(Endpoint(url, "tml-test"))
        try:
            return await main(ServiceGuard.of(service, lambda _: None).client)
        finally:
            await service.close("success")

    with engine_tinker(root, faults, on_server) as server:
        return asyncio.run(run(server.url))


@pytest.mark.parametrize("on_server", [True, False])
def test_a_loss_is_computed_where_the_server_says(tmp_path: Path, on_server: bool) -> None:
    data = data_for("ppo")

    async def main(service: ServiceClient) -> None:
        training = await service.create_lora_training_client(MODEL, rank=4, seed=7)
        loss = await service.create_custom_loss(PPO.fn, PPO.ranks)
        assert (loss.name, loss.in_client) == ("ppo", not on_server)
        builtin = await training.forward_backward(data, "ppo", PPO.config)
        # Submitted with its update, as the runtime does.
        passed = training.forward_backward_custom(as_custom(data), loss)
        stepped = training.optim_step(types.AdamParams(learning_rate=0.01))
        custom, _ = await asyncio.gather(passed, stepped)
        assert custom.metrics["loss:sum"] == pytest.approx(builtin.metrics["loss:sum"], rel=1e-6)
        assert custom.metrics["custom/clipped:sum"] > 0

    talk(tmp_path, main, on_server)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("on_server", [True, False])
def test_faults_change_nothing(tmp_path: Path, on_server: bool) -> None:
    """Requests that are refused, lost, or carried out without an answer."""
    data = as_custom(data_for("ppo"))

    async def main(service: ServiceClient) -> list[float]:
        training = await service.create_lora_training_client(MODEL, rank=4, seed=7)
        loss = await service.create_custom_loss(PPO.fn, PPO.ranks)
        told = []
        for _ in range(8):
            passed = training.forward_backward_custom(data, loss)
            await training.optim_step(types.AdamParams(learning_rate=0.01))
            told.append((await passed).metrics["loss:sum"])
        return told

    faults = evolve(FAULTS, drops=0.15, slow=0.0)
    expected = talk(tmp_path / "expected", main, on_server)
    assert talk(tmp_path / "faulty", main, on_server, faults) == expected
    assert len(set(expected)) == 8


def test_the_same_loss_is_created_once(tmp_path: Path) -> None:
    """The SDK refuses to create a loss twice in a session; two stages may have the same."""

    async def main(service: ServiceClient) -> None:
        losses = [service.create_custom_loss(PPO.fn, PPO.ranks) for _ in range(2)]
        first, second = await asyncio.gather(*losses)
        assert first is second

    talk(tmp_path, main)


def test_what_cannot_be_traced_or_computed_is_one_sentence(tmp_path: Path) -> None:
    def branching(logprobs: Tensor) -> Any:
        return (logprobs.sum() if logprobs.sum() > 0 else -logprobs.sum()), {}

    async def main(service: ServiceClient) -> None:
        with pytest.raises(ServiceError, match=r"branching cannot be traced by torch.fx") as raised:
            await service.create_custom_loss(branching, {"logprobs": 1})
        assert raised.value.__cause__ is not None
        with pytest.raises(ServiceError, match="refused a request: The custom loss '<lambda>', no"):
            await service.create_custom_loss(
                lambda logprobs: (logprobs.outer(logprobs).sum(), {}), {"logprobs": 1}
            )
        training = await service.create_lora_training_client(MODEL, rank=4, seed=7)
        loss = await service.create_custom_loss(PPO.fn, PPO.ranks)
        with pytest.raises(ServiceError, match=r"datum.0. has no loss_fn_inputs.'sampler'."):
            await training.forward_backward_custom(data_for("ppo"), loss)

    talk(tmp_path, main)


def test_a_loss_that_fails_on_the_server_ends_nothing(tmp_path: Path) -> None:
    async def main(service: ServiceClient) -> None:
        training = await service.create_lora_training_client(MODEL, rank=4, seed=7)
        loss = await service.create_custom_loss(unfitting, {"logprobs": 1})
        with pytest.raises(ServiceError, match=r"Datum 0.*too many indices") as raised:
            await training.forward_backward_custom(data_for("ppo", count=1), loss)
        assert not isinstance(raised.value, ServiceLostError)
        await training.forward_backward(data_for("ppo"), "ppo")

    talk(tmp_path, main)


def test_a_loss_that_fails_in_the_client_ends_it_and_says_so(tmp_path: Path) -> None:
    async def main(service: ServiceClient) -> None:
        training = await service.create_lora_training_client(MODEL, rank=4, seed=7)
        loss = await service.create_custom_loss(unfitting, {"logprobs": 1})
        with pytest.raises(
            ServiceLostError, match=r"`unfitting` failed: IndexError: .*no more req"
        ):
            await training.forward_backward_custom(data_for("ppo"), loss)
        with pytest.raises(ServiceLostError, match="an earlier custom loss failed: too many"):
            await training.forward_backward(data_for("ppo"), "ppo")
        again = await service.create_lora_training_client(MODEL, rank=4, seed=7)
        await again.forward_backward(data_for("ppo"), "ppo")

    talk(tmp_path, main, on_server=False)
