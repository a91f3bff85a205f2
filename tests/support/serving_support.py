"""Data for a served model, and the same calls on the engine in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from tinker import types

from rlc.service.engine import open_engine
from rlc.service.engine.service import LocalService, LocalTrainingClient

# Models this small lose time to a second thread.
torch.set_num_threads(1)

T = TypeVar("T")
KEY = "tml-local"
BASE = "Qwen/Qwen3-8B"  # the tiny model under another name
PROMPT = list(range(40, 60))
FOREVER: list[int] = []


def assert_close(ours: Any, theirs: Any) -> None:
    """Rounding may depend on what else is in a batch; a sampled token is the same even so."""
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def prompt(tokens: Sequence[int] = PROMPT) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def sampling(**given: Any) -> types.SamplingParams:
    filled: dict[str, Any] = {"max_tokens": 6, "seed": 3, "stop": FOREVER, **given}
    return types.SamplingParams(**filled)


def policy_data(seed: int = 0, count: int = 3, length: int = 7) -> list[types.Datum]:
    """Datums that suit every policy loss."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(count):
        tokens = rng.integers(40, 300, length + 1)
        arrays: dict[str, Any] = {
            "target_tokens": tokens[1:],
            "logprobs": rng.normal(-5, 0.3, length).astype(np.float32),
            "advantages": rng.normal(size=length).astype(np.float32),
        }
        data.append(types.Datum(prompt(tokens[:-1].tolist()), arrays))
    return data


def sft_data(seed: int = 0, count: int = 2, length: int = 7) -> list[types.Datum]:
    """Datums for cross_entropy."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(count):
        tokens = rng.integers(40, 300, length + 1)
        arrays: dict[str, Any] = {
            "target_tokens": tokens[1:],
            "weights": rng.random(length).astype(np.float32),
        }
        data.append(types.Datum(prompt(tokens[:-1].tolist()), arrays))
    return data


def in_process(folder: Path, work: Callable[[LocalService], Awaitable[T]]) -> T:
    """Do the same on the engine without a server."""
    engine = open_engine(folder, device="cpu", threads=1)

    async def call() -> T:
        return await work(engine)

    try:
        return asyncio.run(call())
    finally:
        engine.close()


def weights(client: LocalTrainingClient) -> np.ndarray:
    """All numbers of an adapter."""
    return client.trainer.adapter.flat_P.numpy().copy()
