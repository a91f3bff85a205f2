"""Adapters and their optimiser: steps against torch's AdamW, what is trained, what is shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from local_support import (
    DATA,
    FRESH,
    RANK,
    folder,
    gradient,
    random_group,
    run,
    step_metrics,
    warm,
    weights,
)
from tinker import types

from rlc.service.engine.service import LocalService, LocalTrainingClient
from rlc.service.interface import ServiceError


def test_gradients_accumulate_until_the_step(service: LocalService) -> None:
    async def main() -> list[np.ndarray]:
        client = await warm(service)
        seen = []
        for _ in range(2):
            await client.forward_backward(DATA, "ppo")
            seen.append(gradient(client))
        await client.forward(DATA, "ppo")
        seen.append(gradient(client))
        await client.optim_step(FRESH)
        return [*seen, gradient(client)]

    once, twice, after_forward, after_step = run(main)
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5)
    np.testing.assert_array_equal(after_forward, twice)
    assert not after_step.any()


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_steps_are_those_of_torch_adamw(service: LocalService, clip: float) -> None:
    params = types.AdamParams(
        learning_rate=0.01, beta1=0.8, beta2=0.9, eps=1e-8, weight_decay=0.1, grad_clip_norm=clip
    )

    async def main() -> tuple[np.ndarray, np.ndarray, list[float], list[float]]:
        client = await service.create_lora_training_client(folder(), rank=RANK, seed=0)
        theirs = torch.nn.Parameter(torch.from_numpy(weights(client)))
        torch_adamw = torch.optim.AdamW(
            [theirs], lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1
        )
        norms, expected_norms = [], []
        for seed in range(4):
            await client.forward_backward(random_group(seed), "importance_sampling")
            theirs.grad = torch.from_numpy(gradient(client))
            expected_norms.append(float(theirs.grad.norm()))
            if clip:
                torch.nn.utils.clip_grad_norm_([theirs], clip)
            torch_adamw.step()
            norms.append(step_metrics(await client.optim_step(params))["grad_norm"])
        return weights(client), theirs.detach().numpy(), norms, expected_norms

    ours, theirs, norms, expected_norms = run(main)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert norms == pytest.approx(expected_norms, rel=1e-5)


def test_a_step_without_a_gradient_changes_nothing(service: LocalService) -> None:
    async def main() -> tuple[np.ndarray, np.ndarray, float]:
        client = await warm(service)
        before = weights(client)
        response = await client.optim_step(FRESH)
        return before, weights(client), step_metrics(response)["grad_norm"]

    before, after, norm = run(main)
    np.testing.assert_array_equal(before, after)
    assert norm == 0.0


@pytest.mark.parametrize("kind", ["mlp", "attn", "unembed"])
def test_switches_choose_what_is_trained(service: LocalService, kind: str) -> None:
    inside = {"mlp": ".mlp.", "attn": ".self_attn.", "unembed": "lm_head"}

    async def main() -> LocalTrainingClient:
        only: dict[str, Any] = {f"train_{name}": name == kind for name in inside}
        return await service.create_lora_training_client(folder(), rank=RANK, seed=0, **only)

    names = run(main).trainer.adapter.pairs
    assert names
    assert all(inside[kind] in name for name in names)


def test_adapters_over_one_base_share_it_and_nothing_else(service: LocalService) -> None:
    async def main() -> tuple[np.ndarray, np.ndarray, bool]:
        one = await service.create_lora_training_client(folder(), rank=RANK, seed=0)
        other = await service.create_lora_training_client(folder(), rank=8, seed=1)
        alone = (await other.forward(DATA, "ppo")).loss_fn_outputs[0]["logprobs"].to_numpy()
        one.forward_backward(DATA, "ppo")
        await one.optim_step(FRESH)
        later = (await other.forward(DATA, "ppo")).loss_fn_outputs[0]["logprobs"].to_numpy()
        return alone, later, one.trainer.base is other.trainer.base

    alone, later, shared = run(main)
    np.testing.assert_array_equal(alone, later)
    assert shared


def test_the_seed_decides_the_initial_adapter(service: LocalService) -> None:
    async def main(seed: int | None) -> np.ndarray:
        return weights(await service.create_lora_training_client(folder(), rank=RANK, seed=seed))

    first = run(lambda: main(7))
    np.testing.assert_array_equal(first, run(lambda: main(7)))
    assert (first != run(lambda: main(8))).any()
    assert (run(lambda: main(None)) != run(lambda: main(None))).any()


@pytest.mark.parametrize("setting", [{"learning_rate": -1.0}, {"beta1": 1.0}, {"eps": 0.0}])
def test_optimiser_settings_out_of_range(service: LocalService, setting: dict[str, float]) -> None:
    async def main() -> None:
        client = await warm(service)
        client.forward_backward(DATA, "ppo")
        await client.optim_step(types.AdamParams(**setting))

    with pytest.raises(ServiceError, match=next(iter(setting))):
        run(main)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rank": 3}, "power of two"),
        ({"rank": 0}, "power of two"),
        ({"train_mlp": False, "train_attn": False, "train_unembed": False}, "train something"),
    ],
)
def test_adapters_that_cannot_be_made(
    service: LocalService, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ServiceError, match=says):
        run(lambda: service.create_lora_training_client(folder(), **given))
