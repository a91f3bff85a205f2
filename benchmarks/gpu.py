"""The embedded engine on a real architecture, beside plain transformers, in one run.

``python benchmarks/gpu.py --size 4b`` makes a Qwen3 of random weights and measures on CUDA: sampled
and trained tokens per second, the most memory, by how much the trainer's logprobs differ from the
sampler's, and the tokens beside those that `rlc explain` predicts. Both sides compute in the type
that ``--dtype`` names. ``--size tiny --device cpu`` shows on any machine that it works.
``docs/howto/use-a-gpu.md`` has what it gave on an H200.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlc.service.engine  # (before torch)

# isort: split
import numpy as np
import torch
import transformers
from attrs import frozen
from rich.console import Console
from rich.table import Table
from tinker import types

import rlc
from rlc.service import tiny
from rlc.service.engine import open_engine

RANK = 32
RECIPE = """\
model policy {{ base = "{folder}" lora_rank = 32 renderer = "qwen3_instruct" }}
env questions = problems("rows.jsonl", grader = exact) |> chat()
train main {{
  model = policy
  env = questions
  batch = groups({groups}, group_size = {members})
  sampling = sample(max_tokens = {answer})
  advantage = grpo()
  loss = importance_sampling()
  optimizer = adam(1e-4)
  steps = 1
  on_error = stop
}}
"""


@frozen
class Size:
    """An architecture of Qwen3's kind, and how much is asked of it at once."""

    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int = 151_936
    groups: int = 16
    members: int = 8
    prompt: int = 256
    answer: int = 256


SIZES = {
    "tiny": Size(64, 2, 4, 128, 512, groups=2, members=2, prompt=16, answer=8),
    "0.5b": Size(1024, 28, 16, 3072),
    "1.7b": Size(2048, 28, 16, 6144),
    "4b": Size(2560, 36, 32, 9728),
    "8b": Size(4096, 36, 32, 12288),
}


@frozen
class Row:
    """What one side did: tokens per second, and the most bytes of the device; None on a CPU."""

    name: str
    sampled: float
    trained: float
    memory: int | None


@frozen
class Drawn:
    """Of one turn of the engine: differences of its two logprobs, in nats, and tokens by kind."""

    gaps: np.ndarray
    tokens: dict[str, int]

    @property
    def divergence(self) -> float:
        """An estimate of that of the sampler from the trainer, from its own samples."""
        return float(np.mean(np.expm1(self.gaps) - self.gaps))


def make_model(size: Size, folder: Path, device: str) -> int:
    """Write a model of random weights in bfloat16; return its number of parameters."""
    config = transformers.Qwen3Config(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=min(8, size.heads // 2),
        head_dim=128 if size.hidden > 64 else 16,
        intermediate_size=size.inner,
        vocab_size=size.vocabulary,
        tie_word_embeddings=size.hidden < 4096,
        max_position_embeddings=4096,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (tiny.path() / name).is_file():
            shutil.copy(tiny.path() / name, folder / name)
    return int(model.num_parameters())


def questions_of(size: Size) -> list[str]:
    """Of about ``size.prompt`` tokens each, with what a chat adds."""
    rng = np.random.default_rng(2)
    return [" ".join(map(str, rng.integers(0, 10, size.prompt // 2))) for _ in range(size.groups)]


def prompts_of(size: Size) -> list[list[int]]:
    """The questions as the renderer `qwen3_instruct` writes them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny.path())
    chat = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    rows = [tokenizer.encode(chat.format(text)) for text in questions_of(size)]
    shortest = min(map(len, rows))  # transformers gets them as one tensor
    return [row[-shortest:] for row in rows]


def predicted(size: Size, folder: Path, scratch: Path) -> dict[str, float]:
    """The tokens of a step, by kind, that `rlc explain` gives as the most of such a recipe."""
    rows = [{"question": text, "answer": "0"} for text in questions_of(size)]
    (scratch / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (scratch / "step.rl").write_text(
        RECIPE.format(folder=folder, groups=size.groups, members=size.members, answer=size.answer)
    )
    cost = rlc.load(str(scratch / "step.rl")).explain().to_dict()["cost"]
    tokens: dict[str, float] = cost["stages"][0]["step"]["high"]["tokens"]
    return tokens


def started(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    return time.perf_counter()


def ended(device: str, since: float) -> tuple[float, int | None]:
    """Seconds, and the most memory since then."""
    if device != "cuda":
        return time.perf_counter() - since, None
    torch.cuda.synchronize()
    return time.perf_counter() - since, torch.cuda.max_memory_allocated()


async def measure_engine(
    size: Size, folder: Path, scratch: Path, device: str, dtype: str, repeats: int
) -> tuple[Row, Drawn]:
    """The engine's row, and what it drew."""
    engine = open_engine(scratch / "runs", device=device, dtype=dtype)
    try:
        client = await engine.create_lora_training_client(str(folder), rank=RANK, seed=1)
        sampler = await client.save_weights_and_get_sampling_client()
        params = types.SamplingParams(max_tokens=size.answer, temperature=1.0, seed=1, stop=[])
        prompts = prompts_of(size)
        sampled, trained, peaks = list[float](), list[float](), list[int]()
        drawn = Drawn(np.zeros(1), {})
        for turn in range(repeats + 1):  # the first warms up
            since = started(device)
            replies = await asyncio.gather(
                *[
                    sampler.sample(types.ModelInput.from_ints(p), size.members, params)
                    for p in prompts
                ]
            )
            seconds, peak = ended(device, since)
            data = [
                datum(prompt, sequence)
                for prompt, reply in zip(prompts, replies, strict=True)
                for sequence in reply.sequences
            ]
            since = started(device)
            passed = await client.forward_backward(data, "importance_sampling")
            await client.optim_step(types.AdamParams(learning_rate=0.0))
            trained_seconds, trained_peak = ended(device, since)
            made = sum(len(s.tokens) for reply in replies for s in reply.sequences)
            read = sum(d.model_input.length for d in data)
            if turn == 0:
                tokens = {"prefill": size.members * sum(map(len, prompts)), "sample": made}
                drawn = Drawn(differences(data, passed), tokens | {"train": read})
                continue
            sampled.append(made / seconds)
            trained.append(read / trained_seconds)
            print(f"engine: {sampled[-1]:,.0f} sampled, {trained[-1]:,.0f} trained tokens/s")
            peaks += [p for p in (peak, trained_peak) if p is not None]
        row = Row(f"engine, {dtype}", *medians(sampled, trained), max(peaks, default=None))
        return row, drawn
    finally:
        engine.close()


def datum(prompt: list[int], sequence: types.SampledSequence) -> types.Datum:
    tokens, known = [*prompt, *sequence.tokens], len(prompt) - 1
    arrays: dict[str, Any] = {
        "target_tokens": np.array(tokens[1:]),
        "logprobs": np.array([0.0] * known + list(sequence.logprobs or []), "f4"),
        "advantages": np.array([0.0] * known + [1.0] * len(sequence.tokens), "f4"),
    }
    return types.Datum(types.ModelInput.from_ints(tokens[:-1]), arrays)


def differences(data: list[types.Datum], passed: types.ForwardBackwardOutput) -> np.ndarray:
    """The trainer's logprobs less the sampler's, on sampled tokens."""
    found: list[float] = []
    for item, output in zip(data, passed.loss_fn_outputs, strict=True):
        sampled = item.loss_fn_inputs["advantages"].to_numpy() != 0
        theirs = item.loss_fn_inputs["logprobs"].to_numpy()[sampled]
        found += (output["logprobs"].to_numpy()[sampled] - theirs).astype(float).tolist()
    return np.array(found)


def measure_transformers(
    size: Size, folder: Path, device: str, dtype: torch.dtype, repeats: int
) -> Row:
    """`generate` on the same prompts, and a padded batch with an adapter of PEFT."""
    import peft

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device)
    lora = peft.LoraConfig(r=RANK, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, lora)
    ids = torch.tensor(prompts_of(size), device=device).repeat_interleave(size.members, 0)
    prompt = ids.shape[1]
    length = {"max_new_tokens": size.answer, "min_new_tokens": size.answer}
    drawn = ids

    def generate() -> int:
        nonlocal drawn
        with torch.no_grad():
            drawn = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, **length
            )
        return int(drawn.numel() - ids.numel())

    def train() -> int:
        for part in torch.split(
            drawn, size.members
        ):  # a group at a time: the logits take the memory
            logits = model(input_ids=part[:, :-1], use_cache=False).logits.float()
            logprobs = logits.log_softmax(-1).gather(2, part[:, 1:, None])[..., 0]
            (-logprobs[:, prompt - 1 :].sum()).backward()
        model.zero_grad()
        return int(drawn[:, 1:].numel())

    rates: dict[Callable[[], int], list[float]] = {generate: [], train: []}
    peaks = list[int]()
    for turn in range(repeats + 1):
        for work, found in rates.items():
            since = started(device)
            tokens = work()
            seconds, peak = ended(device, since)
            if turn:
                found.append(tokens / seconds)
                print(f"transformers: {found[-1]:,.0f} tokens/s")
                peaks += [] if peak is None else [peak]
    name = f"transformers, {str(dtype).removeprefix('torch.')}"
    return Row(name, *medians(rates[generate], rates[train]), max(peaks, default=None))


def medians(*rates: list[float]) -> tuple[float, float]:
    first, second = (float(np.median(rate)) for rate in rates)
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="0.5b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    size, console = SIZES[args.size], Console()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here that PyTorch can use")
    if args.device == "cpu" and args.size != "tiny":
        parser.error(f"--size {args.size} is for a GPU; --size tiny --device cpu runs anywhere")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = scratch / "model"
        parameters = make_model(size, folder, args.device)
        expected = predicted(size, folder, scratch)
        engine = measure_engine(size, folder, scratch, args.device, args.dtype, args.repeats)
        ours, drawn = asyncio.run(engine)
        if args.device == "cuda":
            torch.cuda.empty_cache()
        dtype = getattr(torch, args.dtype)
        theirs = measure_transformers(size, folder, args.device, dtype, args.repeats)
    where = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    table = Table(
        title=f"{parameters / 1e6:,.1f} million parameters on {where}; {size.groups} × "
        f"{size.members} replies of {size.answer} tokens to prompts of {size.prompt}"
    )
    for title in ("", "sampled tokens/s", "trained tokens/s", "memory, GiB"):
        table.add_column(title, justify="right" if title else "left")
    for row in (ours, theirs):
        memory = "" if row.memory is None else f"{row.memory / 2**30:.1f}"
        table.add_row(row.name, f"{row.sampled:,.0f}", f"{row.trained:,.0f}", memory)
    console.print(table)
    apart = np.abs(drawn.gaps)
    console.print(
        f"trainer and sampler differ by {apart.mean():.2g} nats on average, {apart.max():.2g} at "
        f"most; divergence {drawn.divergence:.1g}"
    )
    table = Table(title="tokens of a step")
    for title in ("", "used", "explained, high"):
        table.add_column(title, justify="right" if title else "left")
    shared = expected["prefill"] + expected["cached"]
    for kind, used in drawn.tokens.items():
        most = shared if kind == "prefill" else expected[kind]
        table.add_row(kind, f"{used:,}", f"{most:,.0f}")
    console.print(table)
    console.print("rlc explain predicts no time here: it knows that of a run (--latency RUN)")


if __name__ == "__main__":
    main()
