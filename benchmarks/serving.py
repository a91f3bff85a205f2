"""What the HTTP and SDK layer costs, and what ``rlc serve`` yields, beside the engine in-process.

    python benchmarks/serving.py [--rounds 5] [--tokens 32] [--device cpu]

The server is a process of its own, driven by the official SDK; the other side is the same engine
called directly. Both sides take turns in every round, so that a busy machine slows both; the
figures are medians. The model is the tiny one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import rlc.service.engine  # noqa: F401 (before torch)

BASE, KEY = "tiny", "tml-local"
CONCURRENCY = (1, 16, 64)
PROMPT = list(range(40, 88))  # 48 tokens
FOREVER: list[int] = []
GROUPS, MEMBERS = 16, 8  # rollouts of a training step
DATUMS, LENGTH = 8, 64  # of one forward_backward request


def serving(
    folder: Path, device: str | None, models: Sequence[str] = ()
) -> AbstractContextManager[tuple[str, int]]:
    """The address of a server of Tinker's protocol, and its process's number."""
    words = ["--checkpoints", str(folder), *(["--device", device] if device else [])]
    return started(*words, *(f"--model={model}" for model in models))


@contextmanager
def started(*words: str, cwd: Path | None = None) -> Iterator[tuple[str, int]]:
    """The address of ``rlc serve`` in a process of its own, and the process's number."""
    command = [sys.executable, "-m", "rlc", "serve", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"_BASE_URL=(http://[^/\s]+)", line):
                    yield found[1], process.pid
                    break
        finally:
            process.terminate()


def prompt(i: int) -> Any:
    """A prompt whose last tokens differ from those of others."""
    from tinker import types

    return types.ModelInput.from_ints([*PROMPT[:-2], 40 + i % 40, 40 + i // 40])


def datums(count: int, length: int) -> list[Any]:
    """Policy datums of made-up numbers."""
    import numpy as np
    from tinker import types

    rng = np.random.default_rng(0)
    data = []
    for _ in range(count):
        tokens = rng.integers(40, 300, length + 1)
        inputs: dict[str, Any] = {
            "target_tokens": tokens[1:],
            "logprobs": np.full(length, -5, dtype=np.float32),
            "advantages": rng.normal(size=length).astype(np.float32),
        }
        data.append(types.Datum(types.ModelInput.from_ints(tokens[:-1].tolist()), inputs))
    return data


async def one_of_many(client: Any, samples: int, tokens: int) -> None:
    """One request of many samples."""
    await client.sample(prompt(0), samples, sampling(tokens))


async def many_of_one(client: Any, requests: int, tokens: int) -> None:
    """Many requests of one sample each, of the same prompt."""
    await asyncio.gather(
        *(client.sample(prompt(0), 1, sampling(tokens, seed)) for seed in range(requests))
    )


async def many_passes(client: Any, requests: int, data: list[Any]) -> None:
    """Many forward_backward requests, then a step that clears the gradient."""
    await asyncio.gather(
        *(client.forward_backward(data, "importance_sampling") for _ in range(requests))
    )


async def step(client: Any, data: list[Any], tokens: int) -> None:
    """A training step: snapshot, rollouts, forward_backward and optim_step together."""
    from tinker import types

    sampler = await client.save_weights_and_get_sampling_client()
    await asyncio.gather(
        *(sampler.sample(prompt(g), MEMBERS, sampling(tokens, g)) for g in range(GROUPS))
    )
    passed = client.forward_backward(data, "importance_sampling")
    stepped = client.optim_step(types.AdamParams(learning_rate=0.0))
    await asyncio.gather(passed, stepped)


def sampling(tokens: int, seed: int = 0) -> Any:
    """Exactly ``tokens`` tokens."""
    from tinker import types

    return types.SamplingParams(max_tokens=tokens, seed=seed, stop=FOREVER)


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def compare(rounds: int, sides: dict[str, Callable[[], Awaitable[None]]]) -> dict[str, float]:
    """Median seconds of each side, in turns; the first round only warms up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(rounds + 1):
        for name, work in sides.items():
            seconds = await timed(work)
            if round_:
                times[name].append(seconds)
    return {name: median(values) for name, values in times.items()}


def each(
    sides: dict[str, Any], work: Callable[..., Awaitable[None]], *given: Any
) -> dict[str, Callable[[], Awaitable[None]]]:
    """The same work for the client of every side."""
    return {side: partial(work, client, *given) for side, client in sides.items()}


def print_rates(concurrent: int, tokens: int, seconds: dict[str, float]) -> None:
    rates = "  ".join(f"{side} {tokens / value:8.0f}" for side, value in seconds.items())
    print(f"  {concurrent:3} concurrent   {rates}")


async def measure(service: Any, sdk: Any, rounds: int, tokens: int) -> None:
    local = await service.create_lora_training_client(BASE, rank=8, seed=0)
    served = await sdk.create_lora_training_client(BASE, rank=8, seed=0)
    samplers = {
        "in-process": await local.save_weights_and_get_sampling_client(),
        "served": await served.save_weights_and_get_sampling_client(),
    }
    trainers = {"in-process": local, "served": served}

    data = datums(GROUPS * MEMBERS, LENGTH)
    seconds = await compare(rounds, each(trainers, step, data, tokens))
    print(f"a step of {GROUPS} x {MEMBERS} rollouts of {tokens} tokens, {len(data)} datums")
    for side, value in seconds.items():
        print(f"  {side:12} {value * 1e3:8.0f} ms")
    cost = seconds["served"] - seconds["in-process"]
    print(f"  HTTP and SDK {cost * 1e3:8.0f} ms a step\n")

    print(f"sampled tokens/s, requests of one sample of {tokens} tokens")
    for n in CONCURRENCY:
        seconds = await compare(rounds, each(samplers, many_of_one, n, tokens))
        print_rates(n, n * tokens, seconds)
    few = datums(DATUMS, LENGTH)
    print(f"\nforward_backward tokens/s, requests of {DATUMS} x {LENGTH} tokens")
    for n in CONCURRENCY:
        seconds = await compare(rounds, each(trainers, many_passes, n, few))
        print_rates(n, n * DATUMS * LENGTH, seconds)

    client = samplers["served"]
    seconds = await compare(
        rounds,
        {
            "one request of 64": partial(one_of_many, client, 64, tokens),
            "64 requests of one": partial(many_of_one, client, 64, tokens),
        },
    )
    print(f"\n64 samples of {tokens} tokens from the server")
    for side, value in seconds.items():
        print(f"  {side:18} {value * 1e3:8.0f} ms  {64 * tokens / value:8.0f} tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--device")
    args = parser.parse_args()
    os.environ["TINKER_TELEMETRY"] = "0"
    import tinker

    with tempfile.TemporaryDirectory() as folder:
        from rlc.service.engine import open_engine

        service = open_engine(Path(folder) / "local", device=args.device)
        with serving(Path(folder) / "served", args.device) as (url, _):
            sdk = tinker.ServiceClient(base_url=url, api_key=KEY)
            asyncio.run(measure(service, sdk, args.rounds, args.tokens))
        service.close()


if __name__ == "__main__":
    main()
