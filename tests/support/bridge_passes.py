"""Passes of every loss, and steps of them, as a program of the SDK makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loss_functions import WRITTEN, as_custom, data_for
from serving_support import policy_data, sft_data
from tinker import types

from rlc.service.interface import ServiceClient, TrainingClient

ADAM = types.AdamParams(learning_rate=3e-3, weight_decay=0.01)
CLIPS = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}
CONFIG: dict[str, dict[str, float | str] | None] = {"ppo": {**CLIPS}, "cispo": {**CLIPS}}


async def opened(service: ServiceClient, rank: int = 4) -> TrainingClient:
    return await service.create_lora_training_client("tiny", rank=rank, seed=7)


def negative(data: list[types.Datum]) -> list[types.Datum]:
    """Likelihoods that are to sink, with a weight of 0 here and there."""
    sunk = []
    for datum in data:
        weights_T = datum.loss_fn_inputs["weights"].to_numpy() - 0.7
        weights_T[::3] = 0
        inputs: Any = {**datum.loss_fn_inputs, "weights": types.TensorData.from_numpy(weights_T)}
        sunk.append(types.Datum(datum.model_input, inputs))
    return sunk


PASSES: dict[str, list[tuple[str, list[types.Datum]]]] = {
    "cross_entropy": [("cross_entropy", negative(sft_data(3, count=3)))],
    "importance_sampling": [("importance_sampling", policy_data(1))],
    "ppo": [("ppo", policy_data(2))],
    "cispo": [("cispo", policy_data(3))],
    "several": [
        ("cross_entropy", negative(sft_data(4, count=1, length=3))),
        ("ppo", policy_data(5, count=2)),
        ("importance_sampling", policy_data(6, count=4, length=5)),
    ],
}


async def two_steps(
    training: TrainingClient,
    passes: Sequence[tuple[str, list[types.Datum]]],
    pipelined: bool,
) -> list[float]:
    """Two steps on the same passes: their losses, norms, and the logprobs at the end."""
    numbers = list[float]()
    for _ in range(2):
        outputs, coming = [], []
        for loss, data in passes:
            asked = training.forward_backward(data, loss, CONFIG.get(loss))
            if pipelined:
                coming.append(asked)
            else:
                outputs.append(await asked)
        stepped = training.optim_step(ADAM)
        outputs += [await one for one in coming]
        numbers += [one.metrics["loss:sum"] for one in outputs]
        numbers.append((await stepped).metrics["grad_norm"])  # type: ignore[index]
        numbers += [x for one in outputs for o in one.loss_fn_outputs for x in o["logprobs"].data]
    end = await training.forward(sft_data(9), "cross_entropy")
    return numbers + [x for one in end.loss_fn_outputs for x in one["logprobs"].data]


async def own_step(service: ServiceClient, training: TrainingClient) -> list[float]:
    """A step of a loss that the SDK computes in the client, and the logprobs at the end."""
    data, ppo = as_custom(data_for("ppo")), WRITTEN["ppo"]
    loss = await service.create_custom_loss(ppo.fn, ppo.ranks)
    passed = training.forward_backward_custom(data, loss)
    stepped = training.optim_step(ADAM)
    output, step = await passed, await stepped
    end = await training.forward(sft_data(9), "cross_entropy")
    told = [output.metrics["loss:sum"], step.metrics["grad_norm"]]  # type: ignore[index]
    return told + [x for one in end.loss_fn_outputs for x in one["logprobs"].data]
