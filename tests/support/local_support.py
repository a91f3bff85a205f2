"""Small random models of several architectures, and shorthands for talking to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import tokenizers
import torch
import transformers
from tinker import types

from rlc.service.engine import open_engine
from rlc.service.engine.service import LocalService, LocalTrainingClient

# Models this small lose time to a second thread.
torch.set_num_threads(1)

T = TypeVar("T")
VOCABULARY = 96
PROMPT = [5, 17, 40, 9, 33]
FOREVER: list[int] = []  # no stops
END = 1
_SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": END,
    "pad_token_id": 2,
}
_WINDOW = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "qwen3": lambda: transformers.Qwen3Config(**_SMALL, tie_word_embeddings=True),
    "llama": lambda: transformers.LlamaConfig(**_SMALL, attention_bias=True),
    # Windows on half of the layers, capped scores, scaled embeddings.
    "gemma2": lambda: transformers.Gemma2Config(**_SMALL, **_WINDOW, query_pre_attn_scalar=8),
}


@cache
def _folder(architecture: str) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_config(ARCHITECTURES[architecture]())
    model.save_pretrained(folder.name)
    if architecture == "qwen3":
        _character_tokenizer().save_pretrained(folder.name)
    return folder


def _character_tokenizer() -> Any:
    """Token i is the character 32 + i."""
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({chr(32 + i): i for i in range(VOCABULARY)}, unk_token="~")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


def folder(architecture: str = "qwen3") -> str:
    """A folder with a random model."""
    return _folder(architecture).name


def plain_model(architecture: str = "qwen3") -> Any:
    """The same model as transformers runs it."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder(architecture), dtype=torch.float32, attn_implementation="eager"
    )


def engine(root: Path) -> LocalService:
    """An engine on the CPU, with one thread so that small tests stay quick."""
    return open_engine(root, device="cpu", threads=1)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function on an event loop of its own."""

    async def call() -> T:
        return await main()

    return asyncio.run(call())


def prompt(tokens: Sequence[int]) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def policy_datum(
    tokens: Sequence[int], logprobs: Sequence[float], advantages: Sequence[float]
) -> types.Datum:
    """A datum of a policy loss; targets are the tokens one further on."""
    return types.Datum(
        model_input=prompt(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(tokens[1:], dtype=np.int64)),
            "logprobs": types.TensorData.from_numpy(np.array(logprobs, dtype=np.float32)),
            "advantages": types.TensorData.from_numpy(np.array(advantages, dtype=np.float32)),
        },
    )


def random_group(seed: int, members: int = 5, shared: int = 6) -> list[types.Datum]:
    """Datums that share a prompt, like a group of rollouts, with made-up policy inputs."""
    rng = np.random.default_rng(seed)
    head = rng.integers(3, VOCABULARY, shared)
    data = []
    for _ in range(members):
        tokens = np.concatenate([head, rng.integers(3, VOCABULARY, rng.integers(2, 12))])
        n = len(tokens) - 1
        data.append(
            policy_datum(
                tokens.tolist(),
                rng.normal(-4.5, 0.3, n).tolist(),
                (rng.normal(size=n) * (np.arange(n) >= shared - 1)).tolist(),
            )
        )
    return data


def sft_datum(tokens: Sequence[int]) -> types.Datum:
    """A cross-entropy datum with weight 1 on every token."""
    return types.Datum(
        model_input=prompt(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(tokens[1:], dtype=np.int64)),
            "weights": types.TensorData.from_numpy(np.ones(len(tokens) - 1, dtype=np.float32)),
        },
    )


RANK = 4
DATA = [datum for seed in range(3) for datum in random_group(seed)]
FRESH = types.AdamParams(learning_rate=0.02)


def params(**given: Any) -> types.SamplingParams:
    filled: dict[str, Any] = {"max_tokens": 8, "seed": 3, "stop": FOREVER, **given}
    return types.SamplingParams(**filled)


async def trained(service: LocalService, architecture: str = "qwen3") -> LocalTrainingClient:
    """A training client two steps away from its base."""
    client = await service.create_lora_training_client(folder(architecture), rank=4, seed=0)
    for seed in range(2):
        client.forward_backward(random_group(seed), "importance_sampling")
        await client.optim_step(types.AdamParams(learning_rate=0.02))
    return client


async def warm(service: LocalService, architecture: str = "qwen3") -> LocalTrainingClient:
    """A client whose B matrices are no longer zero."""
    client = await service.create_lora_training_client(folder(architecture), rank=RANK, seed=0)
    client.forward_backward(random_group(99), "importance_sampling")
    await client.optim_step(FRESH)
    return client


def gradient(client: LocalTrainingClient) -> np.ndarray:
    return client.trainer.optimizer.gradient_P.numpy().copy()


def weights(client: LocalTrainingClient) -> np.ndarray:
    return client.trainer.optimizer.parameters_P.numpy().copy()


def step_metrics(response: types.OptimStepResponse) -> dict[str, float]:
    assert response.metrics is not None
    return response.metrics
