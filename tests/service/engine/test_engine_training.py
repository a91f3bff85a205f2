"""Training by value: losses and gradients against plain autograd, steps against torch's AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from local_support import (
    ARCHITECTURES,
    DATA,
    FRESH,
    RANK,
    VOCABULARY,
    folder,
    gradient,
    plain_model,
    policy_datum,
    prompt,
    random_group,
    run,
    sft_datum,
    warm,
)
from tinker import types

from rlc.service.engine.service import LocalService, LocalTrainingClient
from rlc.service.interface import ServiceError


def plain_loss(name: str, lp: Any, datum: types.Datum, config: Mapping[str, float]) -> Any:
    """The definitions of the Tinker documentation, token by token."""
    given = {k: torch.from_numpy(v.to_numpy()).double() for k, v in datum.loss_fn_inputs.items()}
    total = torch.zeros((), dtype=torch.float64)
    for t in range(len(lp)):
        if name == "cross_entropy":
            total = total - given["weights"][t] * lp[t]
            continue
        q, a = given["logprobs"][t], given["advantages"][t]
        ratio = (lp[t] - q).exp()
        low = given["clip_low_threshold"][t] if "clip_low_threshold" in given else config.get("low")
        high = (
            given["clip_high_threshold"][t]
            if "clip_high_threshold" in given
            else config.get("high")
        )
        if name == "importance_sampling":
            total = total - ratio * a
        elif name == "ppo":
            total = total - min(ratio * a, ratio.clamp(low, high) * a)
        elif name == "cispo":
            total = total - ratio.clamp(low, high).detach() * lp[t] * a
        elif name == "dro":
            total = total - (lp[t] * a - config["beta"] / 2 * (lp[t] - q) ** 2)
    return total


def plain_gradient(
    client: LocalTrainingClient,
    architecture: str,
    data: list[types.Datum],
    name: str,
    config: Mapping[str, float],
) -> tuple[float, np.ndarray, list[np.ndarray]]:
    """Loss, gradient and logprobs by transformers' model in float64, one datum at a time."""
    model = plain_model(architecture).double()
    leaves, merged = [], {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for layer, pair in client.trainer.adapter.pairs.items():
        a, b = (x.detach().double().requires_grad_() for x in pair)
        leaves += [a, b]
        merged[f"{layer}.weight"] = parameters[f"{layer}.weight"].detach() + 32 / RANK * b @ a
    total, logprobs = torch.zeros((), dtype=torch.float64), []
    for datum in data:
        ids = torch.tensor([datum.model_input.to_ints()])
        targets = torch.from_numpy(datum.loss_fn_inputs["target_tokens"].to_numpy())
        out = torch.func.functional_call(model, merged, (ids,), tie_weights=False)
        lp = out.logits[0].log_softmax(-1).gather(1, targets[:, None])[:, 0]
        logprobs.append(lp.detach().numpy())
        total = total + plain_loss(name, lp, datum, config)
    found = torch.autograd.grad(total, leaves)
    return total.item(), torch.cat([g.flatten() for g in found]).numpy(), logprobs


CASES = [
    ("importance_sampling", None, {}),
    ("ppo", None, {"low": 0.8, "high": 1.2}),
    ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.5}, {"low": 0.9, "high": 1.5}),
    ("cispo", None, {"low": 0.0, "high": 4.0}),
    ("cispo", {"clip_high_threshold": 1.1}, {"low": 0.0, "high": 1.1}),
    ("dro", {"beta": 0.05}, {"beta": 0.05}),
]


@pytest.mark.parametrize(("name", "given", "config"), CASES)
def test_each_loss_and_its_gradient_equal_plain_autograd(
    service: LocalService, name: str, given: dict[str, float] | None, config: dict[str, float]
) -> None:
    async def main() -> tuple[LocalTrainingClient, types.ForwardBackwardOutput]:
        client = await warm(service)
        return client, await client.forward_backward(DATA, name, given)

    check_against_plain(*run(main), "qwen3", DATA, name, config)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cross_entropy_on_every_architecture(service: LocalService, architecture: str) -> None:
    data = [sft_datum(d.model_input.to_ints()) for d in DATA]

    async def main() -> tuple[LocalTrainingClient, types.ForwardBackwardOutput]:
        client = await warm(service, architecture)
        return client, await client.forward_backward(data, "cross_entropy")

    check_against_plain(*run(main), architecture, data, "cross_entropy", {})


def test_thresholds_may_be_given_per_token(service: LocalService) -> None:
    rng = np.random.default_rng(0)
    data = []
    for datum in DATA:
        n = datum.model_input.length
        bounds = {
            "clip_low_threshold": types.TensorData.from_numpy(rng.uniform(0.5, 1, n).astype("f4")),
            "clip_high_threshold": types.TensorData.from_numpy(rng.uniform(1, 2, n).astype("f4")),
        }
        data.append(types.Datum(datum.model_input, {**datum.loss_fn_inputs, **bounds}))

    async def main() -> tuple[LocalTrainingClient, types.ForwardBackwardOutput]:
        client = await warm(service)
        return client, await client.forward_backward(data, "ppo")

    check_against_plain(*run(main), "qwen3", data, "ppo", {})


def check_against_plain(
    client: LocalTrainingClient,
    output: types.ForwardBackwardOutput,
    architecture: str,
    data: list[types.Datum],
    name: str,
    config: Mapping[str, float],
) -> None:
    loss, expected, logprobs = plain_gradient(client, architecture, data, name, config)
    assert output.metrics["loss:sum"] == pytest.approx(loss, rel=1e-4, abs=1e-3)
    for ours, theirs in zip(output.loss_fn_outputs, logprobs, strict=True):
        np.testing.assert_allclose(ours["logprobs"].to_numpy(), theirs, atol=1e-4)
    scale = np.abs(expected).max()
    assert scale > 0
    np.testing.assert_allclose(gradient(client) / scale, expected / scale, atol=2e-5)


def test_the_order_of_the_datums_and_the_packing_do_not_matter(service: LocalService) -> None:
    async def main(order: list[int], budget: int | None) -> tuple[np.ndarray, list[np.ndarray]]:
        client = await warm(service)
        if budget:
            client.trainer.token_budget = budget
        output = await client.forward_backward([DATA[i] for i in order], "importance_sampling")
        found: list[np.ndarray] = [np.empty(0)] * len(order)
        for i, out in zip(order, output.loss_fn_outputs, strict=True):
            found[i] = out["logprobs"].to_numpy()
        return gradient(client), found

    straight = list(range(len(DATA)))
    shuffled = np.random.default_rng(1).permutation(len(DATA)).tolist()
    expected, logprobs = run(lambda: main(straight, None))
    for order, budget in ((shuffled, None), (straight, 20), (shuffled, 1)):
        found, others = run(partial(main, order, budget))
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
        for ours, theirs in zip(others, logprobs, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_datums_without_advantage_add_logprobs_but_no_gradient(service: LocalService) -> None:
    idle = [policy_datum([4, 5, 6, 7], [-1.0] * 3, [0.0] * 3)]

    async def main() -> tuple[np.ndarray, np.ndarray, Any]:
        client = await warm(service)
        await client.forward_backward(DATA, "ppo")
        without = gradient(client)
        await client.optim_step(types.AdamParams(learning_rate=0.0))
        output = await client.forward_backward(DATA + idle, "ppo")
        return without, gradient(client), output.loss_fn_outputs[-1]["logprobs"].to_numpy()

    without, with_idle, logprobs = run(main)
    np.testing.assert_allclose(with_idle, without, rtol=1e-4, atol=1e-6)
    assert logprobs.shape == (3,)
    assert (logprobs < 0).all()


def test_training_raises_the_probability_of_what_it_is_shown(service: LocalService) -> None:
    async def main() -> list[float]:
        client = await service.create_lora_training_client(folder(), rank=RANK, seed=0)
        data, losses = [sft_datum([9, 8, 7, 6, 5, 4, 3, 9, 8, 7])], []
        for _ in range(12):
            trained = client.forward_backward(data, "cross_entropy")
            stepped = client.optim_step(FRESH)  # submitted before the first is awaited
            losses.append((await trained).metrics["loss:sum"])
            await stepped
        return losses

    losses = run(main)
    assert losses[-1] < losses[0] / 10


GOOD = policy_datum([4, 5, 6], [-1.0, -1.0], [1.0, 1.0])


def changed(**inputs: list[float] | None) -> list[types.Datum]:
    """A bad datum after a good one."""
    given: dict[str, Any] = {k: v.to_numpy() for k, v in GOOD.loss_fn_inputs.items()}
    for key, value in inputs.items():
        if value is None:
            del given[key]
        else:
            given[key] = np.array(value, dtype="i8" if key == "target_tokens" else "f4")
    return [GOOD, types.Datum(GOOD.model_input, given)]


@pytest.mark.parametrize(
    ("data", "loss", "config", "says"),
    [
        ([GOOD], "grpo", None, "Unknown loss 'grpo'; the local engine has importance_sampling"),
        ([GOOD], "ppo", {"clip_low": 0.8}, "ppo has no setting 'clip_low'"),
        ([GOOD], "ppo", {"clip_low_threshold": float("nan")}, "must be a finite number"),
        ([GOOD], "ppo", {"clip_low_threshold": "low"}, "must be a finite number"),
        ([GOOD], "dro", None, "dro needs the setting 'beta'"),
        ([], "ppo", None, "no data"),
        (changed(advantages=None), "ppo", None, "Datum 1: ppo needs the input 'advantages'"),
        (
            changed(weights=[1.0, 1.0]),
            "ppo",
            None,
            "Datum 1: ppo does not read the input 'weights'",
        ),
        (changed(logprobs=[1.0]), "ppo", None, r"Datum 1: logprobs has the shape \[1\]"),
        (changed(advantages=[1.0, float("inf")]), "ppo", None, "Datum 1: advantages has a value"),
        (changed(target_tokens=[1, VOCABULARY]), "ppo", None, "Datum 1: a target token is outside"),
        (changed(logprobs=[-200.0, -1.0]), "ppo", None, "loss is not finite"),
        (
            [sft_datum([3] * 130)],
            "cross_entropy",
            None,
            "129 tokens, more than the model's context",
        ),
        ([sft_datum([-1, 3])], "cross_entropy", None, "token -1 is outside the vocabulary"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_the_gradient_alone(
    service: LocalService,
    data: list[types.Datum],
    loss: str,
    config: dict[str, float | str] | None,
    says: str,
) -> None:
    async def main() -> tuple[np.ndarray, np.ndarray]:
        client = await warm(service)
        await client.forward_backward(DATA, "ppo")
        before = gradient(client)
        if "not finite" in says:  # positive advantages would be clipped
            data[1].loss_fn_inputs["advantages"].to_numpy()[:] = -1.0
        with pytest.raises(ServiceError, match=says):
            await client.forward_backward(data, loss, config)
        return before, gradient(client)

    before, after = run(main)
    np.testing.assert_array_equal(before, after)


def test_an_adapter_of_a_tied_head_leaves_the_embedding_alone(service: LocalService) -> None:
    async def main() -> tuple[LocalTrainingClient, list[np.ndarray]]:
        client = await service.create_lora_training_client(
            folder(), rank=RANK, seed=0, train_mlp=False, train_attn=False
        )
        for seed in range(3):
            client.forward_backward(random_group(seed), "importance_sampling")
            await client.optim_step(FRESH)
        output = await client.forward(DATA, "importance_sampling")
        sampler = await client.save_weights_and_get_sampling_client()
        await sampler.sample(prompt([4, 5]), 1, types.SamplingParams(max_tokens=2, stop=[]))
        return client, [o["logprobs"].to_numpy() for o in output.loss_fn_outputs]

    client, found = run(main)
    embedding = client.trainer.base.module.get_input_embeddings().weight
    assert torch.equal(embedding, plain_model().get_input_embeddings().weight)
    # `plain_gradient` merges the adapter into the head alone.
    _, _, expected = plain_gradient(client, "qwen3", DATA, "importance_sampling", {})
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
