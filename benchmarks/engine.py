"""The embedded engine against plain transformers, side by side in one run.

``python benchmarks/engine.py`` prints tokens per second and their ratio for the shapes of
``recipes/quickstart.rl`` (16 prompts × 8 members) and for short answers to a longer prompt.
Both sides compute the same thing, which is checked; they take turns, and the median of each
counts, so that other load on the machine falls on both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import rlc.service.engine  # noqa: F401 (before torch)

# isort: split
import numpy as np
import torch
import transformers
from attrs import frozen
from rich.console import Console
from rich.table import Table
from tinker import types
from torch import Tensor, nn

from rlc.service.engine import open_engine
from rlc.service.engine.service import LocalSamplingClient, LocalTrainingClient

GROUPS, MEMBERS, RANK = 16, 8, 8


@frozen
class Shape:
    """Tokens of a prompt and of each answer."""

    name: str
    prompt: int
    answer: int
    turns: int = 1


@frozen
class Row:
    """One comparison, tokens per second."""

    name: str
    engine: float
    plain: float


class PlainLora(nn.Module):
    """A linear layer with an adapter, as one writes it without further thought."""

    def __init__(self, base: nn.Linear, a: Tensor, b: Tensor) -> None:
        super().__init__()
        self.base = base
        self.a, self.b = nn.Parameter(a.clone()), nn.Parameter(b.clone())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + (x @ self.a.T @ self.b.T) * (32 / RANK)
        return out


def base_folder(scratch: Path) -> tuple[str, str]:
    """The tiny model where it is installed, else random weights of the same shape."""
    from rlc.service import tiny

    found = Path(tiny.path()) if hasattr(tiny, "path") else None
    if found is not None and (found / "config.json").is_file():
        return str(found), "the tiny model"
    config = transformers.Qwen3Config(
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        vocab_size=400,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    transformers.Qwen3ForCausalLM(config).save_pretrained(scratch)
    return str(scratch), "random weights of the tiny model's shape"


def make_groups(shape: Shape, vocabulary: int) -> list[list[int]]:
    """Token sequences; the members of a group share their prompt, lengths vary by a third."""
    rng = np.random.default_rng(0)
    sequences = []
    for _ in range(GROUPS):
        head = rng.integers(2, vocabulary, shape.prompt)
        for _ in range(MEMBERS):
            length = rng.integers(max(shape.answer * 2 // 3, 1), shape.answer * 4 // 3 + 1)
            sequences.append(np.concatenate([head, rng.integers(2, vocabulary, length)]).tolist())
    return sequences


def make_data(sequences: list[list[int]]) -> list[types.Datum]:
    """Importance-sampling datums with made-up logprobs and advantages."""
    rng = np.random.default_rng(1)
    return [
        types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(np.array(tokens[1:])),
                "logprobs": types.TensorData.from_numpy(np.full(len(tokens) - 1, -6.0, "f4")),
                "advantages": types.TensorData.from_numpy(
                    rng.normal(size=len(tokens) - 1).astype("f4")
                ),
            },
        )
        for tokens in sequences
    ]


def plain_trainer(model: Any, client: LocalTrainingClient, data: list[types.Datum]) -> Any:
    """A function that runs forward and backward on one padded batch and returns the loss."""
    for name, (a, b) in client.trainer.adapter.pairs.items():
        parent, _, child = name.rpartition(".")
        module = model.get_submodule(parent)
        setattr(module, child, PlainLora(getattr(module, child), a.detach(), b.detach()))

    def padded(key: str | None, kind: torch.dtype) -> Tensor:
        rows = [d.loss_fn_inputs[key].to_numpy() if key else d.model_input.to_ints() for d in data]
        return nn.utils.rnn.pad_sequence(
            [torch.as_tensor(row, dtype=kind) for row in rows], batch_first=True
        )

    def run() -> float:
        model.zero_grad()
        ids, targets = padded(None, torch.int64), padded("target_tokens", torch.int64)
        old, advantages = padded("logprobs", torch.float32), padded("advantages", torch.float32)
        lengths = torch.tensor([d.model_input.length for d in data])
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        logprobs = logits.log_softmax(-1).gather(2, targets[..., None])[..., 0]
        loss = -(torch.exp(logprobs - old) * advantages * mask).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    return run


async def compare_training(
    client: LocalTrainingClient, folder: str, shape: Shape, repeats: int
) -> Row:
    """forward_backward against a padded batch with the same adapter."""
    data = make_data(make_groups(shape, client.trainer.base.vocabulary))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.requires_grad_(False)
    plain = plain_trainer(model, client, data)

    async def ours() -> float:
        return (await client.forward_backward(data, "importance_sampling")).metrics["loss:sum"]

    async def theirs() -> float:
        return float(await asyncio.to_thread(plain))

    loss, expected = await ours(), await theirs()
    assert abs(loss - expected) < 1e-3 * max(1.0, abs(expected)), (loss, expected)
    tokens = sum(d.model_input.length for d in data)
    a, b = await medians(ours, theirs, repeats)
    return Row(f"train, {shape.name}", tokens / a, tokens / b)


async def compare_sampling(
    sampler: LocalSamplingClient, folder: str, shape: Shape, repeats: int
) -> Row:
    """sample() against `generate`: same prompts, same number of tokens, and after each turn
    an observation of four tokens, upon which the whole episode is the next prompt."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rng = np.random.default_rng(2)
    prompts = rng.integers(2, model.config.vocab_size, (GROUPS, shape.prompt))
    observation = [5, 6, 7, 8]
    turns = range(shape.turns)

    async def episode(tokens: list[int]) -> int:
        params = types.SamplingParams(max_tokens=shape.answer, stop=[])
        for _ in turns:
            reply = await sampler.sample(types.ModelInput.from_ints(tokens), 1, params)
            tokens = tokens + reply.sequences[0].tokens + observation
        return len(tokens)

    async def ours() -> int:
        episodes = [episode(row.tolist()) for row in prompts for _ in range(MEMBERS)]
        return sum(await asyncio.gather(*episodes))

    def generate() -> int:
        ids = torch.from_numpy(prompts).repeat_interleave(MEMBERS, 0)
        length = {"max_new_tokens": shape.answer, "min_new_tokens": shape.answer}
        seen = torch.tensor(observation).expand(len(ids), -1)
        for _ in turns:
            ids = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, **length
            )
            ids = torch.cat([ids, seen], dim=1)
        return ids.numel()

    async def theirs() -> int:
        return await asyncio.to_thread(generate)

    assert await ours() == await theirs()
    tokens = GROUPS * MEMBERS * shape.answer * shape.turns
    a, b = await medians(ours, theirs, repeats)
    return Row(f"sample, {shape.name}", tokens / a, tokens / b)


async def medians(
    ours: Callable[[], Awaitable[Any]], theirs: Callable[[], Awaitable[Any]], repeats: int
) -> tuple[float, float]:
    """Median seconds of each, run alternately."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for kept, call in zip(seconds, (ours, theirs), strict=True):
            started = time.perf_counter()
            await call()
            kept.append(time.perf_counter() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


async def measure(root: Path, folder: str, repeats: int) -> list[Row]:
    """All comparisons."""
    service = open_engine(root, device="cpu")
    client = await service.create_lora_training_client(folder, rank=RANK, seed=0)
    sampler = await client.save_weights_and_get_sampling_client()
    quickstart = Shape("29 + 41 tokens", 29, 41)
    short = Shape("42 + 5 tokens", 42, 5)
    rows = [
        await compare_sampling(sampler, folder, quickstart, repeats),
        await compare_sampling(sampler, folder, short, repeats),
        await compare_sampling(sampler, folder, Shape("29 + 6 × 3 tokens", 29, 3, 6), repeats),
        await compare_training(client, folder, quickstart, repeats),
        await compare_training(client, folder, short, repeats),
    ]
    service.close()
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="runs of each side")
    repeats = parser.parse_args().repeats
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        folder, which = base_folder(Path(scratch) / "base")
        rows = asyncio.run(measure(Path(scratch) / "checkpoints", folder, repeats))
    table = Table(
        title=f"tokens per second: {which}, {GROUPS} × {MEMBERS}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    for heading, justify in (("", "left"), ("engine", "right"), ("transformers", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("ratio", justify="right")
    for row in rows:
        ratio = f"{row.engine / row.plain:.1f}×"
        table.add_row(row.name, f"{row.engine:,.0f}", f"{row.plain:,.0f}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
