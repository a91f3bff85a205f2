"""Training through the SDK gives the numbers of the engine itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from http_testing import Running
from serving_support import (
    BASE,
    assert_close,
    in_process,
    policy_data,
    prompt,
    sampling,
    sft_data,
    weights,
)
from tinker import types

from rlc.service.engine.service import LocalService

LOSSES: dict[types.LossFnType, dict[str, float] | None] = {
    "cross_entropy": None,
    "importance_sampling": None,
    "ppo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1},
    "cispo": {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0},
    "dro": {"beta": 0.1},
}
STEP = types.AdamParams(learning_rate=0.01, weight_decay=0.1, grad_clip_norm=0.5)


def data_for(loss: types.LossFnType) -> list[types.Datum]:
    return sft_data() if loss == "cross_entropy" else policy_data()


def served_weights(server: Running, client: tinker.TrainingClient) -> np.ndarray:
    return weights(server.backend.sessions.models[client.model_id].client)


def norm(response: types.OptimStepResponse) -> float:
    assert response.metrics is not None
    return response.metrics["grad_norm"]


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_gradients_and_steps_are_those_of_the_engine(
    server: Running, sdk: tinker.ServiceClient, tmp_path: Path, loss: types.LossFnType
) -> None:
    data, config = data_for(loss), LOSSES[loss]

    async def alone(engine: LocalService) -> tuple[Any, Any, np.ndarray]:
        client = await engine.create_lora_training_client("tiny", rank=4, seed=7)
        passed = await client.forward_backward(data, loss, config)
        stepped = await client.optim_step(STEP)
        return passed, stepped, weights(client)

    expected, expected_step, expected_P = in_process(tmp_path, alone)
    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    scored = client.forward(data, loss, config)
    passing, stepping = client.forward_backward(data, loss, config), client.optim_step(STEP)
    passed = passing.result()
    assert passed.metrics["loss:sum"] == pytest.approx(expected.metrics["loss:sum"], rel=1e-5)
    assert scored.result().metrics == passed.metrics
    for ours, theirs in zip(passed.loss_fn_outputs, expected.loss_fn_outputs, strict=True):
        assert_close(ours["logprobs"].data, theirs["logprobs"].data)
    assert norm(stepping.result()) == pytest.approx(norm(expected_step), rel=1e-4)
    np.testing.assert_allclose(served_weights(server, client), expected_P, atol=1e-5)


def test_a_step_clips_by_norm_and_decays_by_value(
    server: Running, sdk: tinker.ServiceClient
) -> None:
    def stepped(**params: float) -> tuple[float, np.ndarray]:
        client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
        client.forward_backward(policy_data(), "importance_sampling")
        step = client.optim_step(types.AdamParams(learning_rate=0.01, beta1=0, beta2=0, **params))
        return norm(step.result()), served_weights(server, client)

    free, free_P = stepped(eps=1.0)
    clipped, clipped_P = stepped(eps=1.0, grad_clip_norm=free / 4)
    assert clipped == free  # reported before clipping
    start = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    start_P = served_weights(server, start)
    # With one step of Adam without momentum, a move m comes of a gradient g = m / (lr - |m|) · 1.
    move_P, small_P = free_P - start_P, clipped_P - start_P
    gradient_P = move_P / (0.01 - np.abs(move_P))
    small_gradient_P = small_P / (0.01 - np.abs(small_P))
    kept = np.abs(gradient_P) > 1e-3
    np.testing.assert_allclose(small_gradient_P[kept], gradient_P[kept] / 4, rtol=0.05)
    _, decayed_P = stepped(eps=1.0, weight_decay=0.5)
    np.testing.assert_allclose(decayed_P, free_P - 0.01 * 0.5 * start_P, atol=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "attn", "unembed"])
def test_only_the_modules_asked_for_are_trained(
    server: Running, sdk: tinker.ServiceClient, rest: tinker.RestClient, kind: str
) -> None:
    kinds = ("mlp", "attn", "unembed")
    flags: dict[str, Any] = {f"train_{name}": name == kind for name in kinds}
    client = sdk.create_lora_training_client(BASE, rank=2, **flags).result()
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(types.AdamParams(learning_rate=0.01)).result()
    adapter = server.backend.sessions.models[client.model_id].client.trainer.adapter
    markers = {"mlp": "mlp", "attn": "self_attn", "unembed": "lm_head"}
    assert adapter.pairs
    assert all(markers[kind] in name for name in adapter.pairs)
    path = client.save_state("flags").result().path
    info = rest.get_weights_info_by_tinker_path(path).result()
    assert {f"train_{name}": getattr(info, f"train_{name}") for name in kinds} == flags
    assert info.lora_rank == 2


def test_a_large_batch_goes_in_pieces_that_arrive_in_any_order(
    server: Running, sdk: tinker.ServiceClient, tmp_path: Path
) -> None:
    """The SDK cuts it at 1,024 datums and sends the first piece last."""
    data = policy_data(count=1030, length=2)

    async def alone(engine: LocalService) -> tuple[float, np.ndarray]:
        client = await engine.create_lora_training_client("tiny", rank=1, seed=1)
        passed = await client.forward_backward(data, "importance_sampling")
        await client.optim_step(STEP)
        return passed.metrics["loss:sum"], weights(client)

    expected, expected_P = in_process(tmp_path, alone)
    client = sdk.create_lora_training_client(BASE, rank=1, seed=1).result()
    passing = client.forward_backward(data, "importance_sampling")
    client.optim_step(STEP).result()
    passed = passing.result()
    assert len(passed.loss_fn_outputs) == 1030
    assert passed.metrics["loss:sum"] == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(served_weights(server, client), expected_P, atol=1e-4)


def test_a_tensor_without_a_shape_has_one_dimension(sdk: tinker.ServiceClient) -> None:
    """rLLM sends what `TensorData(data, dtype)` makes."""
    data = policy_data(count=2)
    bare = [
        types.Datum(
            datum.model_input,
            {k: types.TensorData(v.data, v.dtype) for k, v in datum.loss_fn_inputs.items()},
        )
        for datum in data
    ]
    client = sdk.create_lora_training_client(BASE, rank=2, seed=1).result()
    expected = client.forward(data, "importance_sampling").result()
    found = client.forward(bare, "importance_sampling").result()
    assert found.metrics == expected.metrics


@pytest.mark.parametrize("columns", [None, 2])
def test_a_custom_loss_runs_through_the_logprobs(
    sdk: tinker.ServiceClient, columns: int | None
) -> None:
    """The SDK turns it into a forward pass and a cross-entropy with weights of its own."""
    targets: Any = np.arange(40, 52)[: 6 * (columns or 1)].reshape((6, columns or 1))
    targets = targets if columns else targets[:, 0]
    datum = types.Datum(prompt(list(range(50, 56))), {"target_tokens": targets})

    zeros: Any = targets * 0.0

    def square(data: list[types.Datum], logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
        assert tuple(logprobs[0].shape) == targets.shape
        return (logprobs[0] ** 2).sum(), {"seen": float(len(data))}

    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    scored = client.forward(
        [types.Datum(datum.model_input, {**datum.loss_fn_inputs, "weights": zeros})],
        "cross_entropy",
    ).result()
    lp = scored.loss_fn_outputs[0]["logprobs"].to_numpy()
    passed = client.forward_backward_custom([datum], square).result()
    assert passed.metrics["loss:sum"] == pytest.approx((lp**2).sum(), rel=1e-4)
    assert passed.metrics["seen"] == 1
    assert norm(client.optim_step(STEP).result()) > 0


def one_more(server: Running, training: tinker.TrainingClient) -> np.ndarray:
    """The weights after another step."""
    training.forward_backward(policy_data(1), "importance_sampling")
    training.optim_step(STEP).result()
    return served_weights(server, training)


def test_state_with_and_without_the_optimiser(server: Running, sdk: tinker.ServiceClient) -> None:
    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(STEP)
    path = client.save_state("mid").result().path
    full = sdk.create_training_client_from_state_with_optimizer(path).result()
    bare = sdk.create_training_client_from_state(path).result()
    np.testing.assert_array_equal(served_weights(server, full), served_weights(server, client))
    np.testing.assert_array_equal(served_weights(server, bare), served_weights(server, client))
    expected = one_more(server, client)
    np.testing.assert_array_equal(one_more(server, full), expected)
    assert np.abs(one_more(server, bare) - expected).max() > 1e-4  # Adam started afresh
    client.load_state_with_optimizer(path).result()  # into the model that went on
    np.testing.assert_array_equal(one_more(server, client), expected)
    client.load_state(path).result()
    assert np.abs(one_more(server, client) - expected).max() > 1e-4


def test_a_state_is_loaded_into_a_model_that_is_there(
    server: Running, sdk: tinker.ServiceClient
) -> None:
    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    before = served_weights(server, client)
    path = client.save_state("start").result().path
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(STEP).result()
    assert np.abs(served_weights(server, client) - before).max() > 1e-4
    client.load_state_with_optimizer(path).result()
    np.testing.assert_array_equal(served_weights(server, client), before)
    other = sdk.create_lora_training_client(BASE, rank=8).result()
    with pytest.raises(tinker.RequestFailedError, match="another shape"):
        other.load_state(path).result()


def test_clients_at_once_train_adapters_of_their_own(
    server: Running, sdk: tinker.ServiceClient, tmp_path: Path
) -> None:
    seeds = range(4)

    async def alone(engine: LocalService) -> list[np.ndarray]:
        trained = []
        for seed in seeds:
            client = await engine.create_lora_training_client("tiny", rank=2, seed=seed)
            for _ in range(2):
                await client.forward_backward(policy_data(seed), "importance_sampling")
                await client.optim_step(STEP)
            trained.append(weights(client))
        return trained

    expected = in_process(tmp_path, alone)
    futures = [sdk.create_lora_training_client(BASE, rank=2, seed=seed) for seed in seeds]
    clients = [future.result() for future in futures]
    pending: list[tinker.APIFuture[Any]] = []
    for _ in range(2):
        for seed, client in zip(seeds, clients, strict=True):
            client.forward_backward(policy_data(seed), "importance_sampling")
            pending.append(client.optim_step(STEP))
        sampler = clients[0].save_weights_and_get_sampling_client().result()
        pending.append(sampler.sample(prompt(), 4, sampling()))
    for future in pending:
        future.result()
    for client, expected_P in zip(clients, expected, strict=True):
        np.testing.assert_allclose(served_weights(server, client), expected_P, atol=1e-5)


def test_what_a_client_can_ask_of_its_model(
    sdk: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    client = sdk.create_lora_training_client(BASE, rank=4, user_metadata={"run": "r1"}).result()
    info = client.get_info()
    assert (info.model_data.model_name, info.is_lora, info.lora_rank) == (BASE, True, 4)
    tokenizer = client.get_tokenizer()  # without a hub
    assert tokenizer.decode(tokenizer.encode("Hello")) == "Hello"
    run = rest.get_training_run(client.model_id).result()
    assert run.user_metadata == {"run": "r1"}
    assert (run.base_model, run.lora_rank, run.last_checkpoint) == (BASE, 4, None)
