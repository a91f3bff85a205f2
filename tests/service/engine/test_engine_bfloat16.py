"""The engine in bfloat16: as near to float32 as transformers is, and its sampler to its trainer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from local_support import (
    ARCHITECTURES,
    DATA,
    PROMPT,
    folder,
    gradient,
    params,
    plain_model,
    policy_datum,
    prompt,
    run,
    trained,
    weights,
)
from tinker import types

from rlc.service.engine import attention, open_engine
from rlc.service.engine.base_model import pick_dtype
from rlc.service.engine.service import LocalService, LocalTrainingClient
from rlc.service.interface import ServiceError

BASES = [*ARCHITECTURES, "tiny"]
CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def full(root: Path) -> Iterator[LocalService]:
    opened = open_engine(root, device="cpu", threads=1, dtype="float32")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def half(root: Path) -> Iterator[LocalService]:
    """An engine that reads and writes the same checkpoints."""
    opened = open_engine(root, device="cpu", threads=1, dtype="bfloat16")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("wanted", "device", "saved", "expected"),
    [
        (None, CPU, torch.bfloat16, torch.float32),
        (None, CUDA, torch.bfloat16, torch.bfloat16),
        (None, CUDA, torch.float16, torch.float32),
        (None, CUDA, None, torch.float32),
        (torch.float32, CUDA, torch.bfloat16, torch.float32),
        (torch.bfloat16, CPU, torch.float32, torch.bfloat16),
    ],
)
def test_a_gpu_computes_in_what_a_model_was_saved_in(
    wanted: Any, device: torch.device, saved: Any, expected: torch.dtype
) -> None:
    assert pick_dtype(wanted, device, saved) == expected


def test_the_type_is_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLC_DTYPE", "bfloat16")
    open_engine(tmp_path, device="cpu", dtype="float32").close()
    opened = open_engine(tmp_path, device="cpu")
    assert opened.dtype == torch.bfloat16
    opened.close()
    monkeypatch.setenv("RLC_DTYPE", "float16")
    with pytest.raises(ServiceError, match="computes in float32 or bfloat16, not in 'float16'"):
        open_engine(tmp_path, device="cpu")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logprobs_are_as_near_to_float32_as_those_of_transformers(
    half: LocalService, architecture: str
) -> None:
    sequences = [datum.model_input.to_ints() for datum in DATA]

    async def main() -> list[Any]:
        sampler = await half.create_sampling_client(base_model=folder(architecture))
        return [await sampler.compute_logprobs(prompt(tokens)) for tokens in sequences]

    ours = np.concatenate([np.array(found[1:]) for found in run(main)])
    rounded: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder(architecture), dtype=torch.bfloat16, attn_implementation="eager"
    )
    exact, theirs = (
        np.concatenate([_logprobs(model, tokens) for tokens in sequences])
        for model in (plain_model(architecture), rounded)
    )
    assert 0 < np.abs(ours - exact).mean() < 1.5 * np.abs(theirs - exact).mean()


def _logprobs(model: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, :-1].double()
    found = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[1:, None])
    return np.array(found[:, 0])


@pytest.mark.parametrize("architecture", BASES)
def test_the_sampler_agrees_with_the_trainer(half: LocalService, architecture: str) -> None:
    """Over prompts of two turns, the second from the prefix cache."""

    async def main() -> tuple[list[types.Datum], types.ForwardBackwardOutput]:
        client = await _trained(half, architecture)
        sampler, data = await client.save_weights_and_get_sampling_client(), []
        for seed in range(8):
            told = [5 + seed, *PROMPT]
            asked = params(max_tokens=16, seed=seed)
            first = (await sampler.sample(prompt(told), 1, asked)).sequences[0].tokens
            told += [*first, 7, 9]
            for sequence in (await sampler.sample(prompt(told), 4, asked)).sequences:
                known = [0.0] * (len(told) - 1)
                lp, ones = list(sequence.logprobs or []), [1.0] * len(sequence.tokens)
                data.append(policy_datum([*told, *sequence.tokens], known + lp, known + ones))
        return data, await client.forward(data, "importance_sampling")

    data, passed = run(main)
    gaps = list[float]()
    for datum, output in zip(data, passed.loss_fn_outputs, strict=True):
        sampled = datum.loss_fn_inputs["advantages"].to_numpy() != 0
        gap = output["logprobs"].to_numpy() - datum.loss_fn_inputs["logprobs"].to_numpy()
        gaps += gap[sampled].tolist()
    assert np.abs(gaps).mean() < 0.015
    assert np.mean(np.expm1(gaps) - gaps) < 5e-4  # an estimate of the divergence, in nats


async def _trained(service: LocalService, architecture: str) -> LocalTrainingClient:
    if architecture != "tiny":
        return await trained(service, architecture)
    client = await service.create_lora_training_client("tiny", rank=4, seed=0)
    await client.forward_backward(DATA, "importance_sampling")
    await client.optim_step(types.AdamParams(learning_rate=1e-3))
    return client


def test_a_checkpoint_goes_from_one_type_to_the_other(
    full: LocalService, half: LocalService
) -> None:
    clients: list[LocalTrainingClient] = []

    async def main() -> list[np.ndarray]:
        """Logprobs in float32, and in bfloat16."""
        clients.append(await _trained(full, "tiny"))
        path = (await clients[0].save_state("made")).path
        clients.append(await half.create_training_client_from_state_with_optimizer(path))
        passed = [await client.forward_backward(DATA, "ppo") for client in clients]
        back = (await clients[1].save_state("back")).path
        clients.append(await full.create_training_client_from_state_with_optimizer(back))
        written = [(await client.save_weights_external("export")).path for client in clients[:2]]
        exports.extend(full.store.load(path).arrays for path in written)
        return [np.concatenate([o["logprobs"].data for o in p.loss_fn_outputs]) for p in passed]

    exports: list[dict[str, np.ndarray]] = []
    logprobs = run(main)
    exact, rounded, back = clients
    np.testing.assert_array_equal(weights(rounded), weights(exact))
    for name in ("parameters_P", "mean_P", "square_P"):
        there, here = (getattr(client.trainer.optimizer, name) for client in (exact, back))
        assert torch.equal(there, here)
    assert exports[0].keys() == exports[1].keys()
    for key, array in exports[0].items():
        np.testing.assert_array_equal(exports[1][key], array)
    # What is summed and stepped is in float32, and points where it does in float32.
    for client in (exact, rounded):
        adam = client.trainer.optimizer
        assert {t.dtype for t in (adam.gradient_P, adam.mean_P, adam.square_P)} == {torch.float32}
    ours, theirs = gradient(rounded).astype(float), gradient(exact).astype(float)
    assert np.linalg.norm(ours - theirs) < 0.15 * np.linalg.norm(theirs)
    assert (ours != torch.from_numpy(ours).bfloat16().double().numpy()).mean() > 0.5
    assert 0 < np.abs(logprobs[1] - logprobs[0]).mean() < 0.05


def test_keys_and_values_are_kept_in_half_the_memory(half: LocalService) -> None:
    async def main() -> None:
        sampler = await half.create_sampling_client(base_model=folder())
        await sampler.sample(prompt(PROMPT), 2, params())

    run(main)
    decoder = half._engine(folder()).decoder
    assert decoder.kv.tensor.dtype == torch.bfloat16
    entry, shared = decoder.prefixes.longest(half._engine(folder()).bare, np.array(PROMPT))
    assert shared == len(PROMPT)
    assert entry is not None
    assert entry.cut.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_that_is_not_the_models_is_refused(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an architecture scaled its scores in a way that the engine does not know."""
    own = attention.scaled_dot_product

    def scaled(q: Any, k: Any, v: Any, head: attention.AttentionHeads, bias: Any) -> Any:
        return own(q * 1.5, k, v, head, bias)

    monkeypatch.setattr(attention, "scaled_dot_product", scaled)
    engine = open_engine(tmp_path, device="cpu", threads=1, dtype=dtype)
    try:
        with pytest.raises(ServiceError, match="does not reproduce Qwen3ForCausalLM"):
            run(lambda: engine.create_sampling_client(base_model=folder()))
    finally:
        engine.close()
