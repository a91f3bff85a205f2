"""Supervised training of the tiny model on demonstrations: plain PyTorch, fp32, CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tools.tiny.demonstrations import Example
from tools.tiny.tokenizer import MAX_POSITIONS

# Small batches learn sooner: after half a million tokens the loss on unseen words to spell is
# 0.09 with these two, and 2.0 (nothing learned) with 4096 tokens at 4e-3.
BATCH_TOKENS = 1024
PEAK_LR = 2e-3
WARMUP = 0.02  # share of the steps
DECAY_FROM = 0.2  # the rate falls linearly from here to a hundredth of the peak
_LOG_EVERY = 200

Batch = list[Example]


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Return an untrained model with 0.83M parameters."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        tie_word_embeddings=True,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.04,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def batches(examples: Sequence[Example], rng: Random) -> list[Batch]:
    """Return a shuffled epoch, in batches of similar length, at most ``BATCH_TOKENS`` padded."""
    # The length is blurred, so that an epoch's batches are not the same examples each time.
    ordered = sorted(examples, key=lambda example: len(example.tokens_T) * rng.uniform(0.9, 1.1))
    found: list[Batch] = [[]]
    longest = 0
    for example in ordered:
        longest = max(longest, len(example.tokens_T))
        if found[-1] and longest * (len(found[-1]) + 1) > BATCH_TOKENS:
            found.append([])
            longest = len(example.tokens_T)
        found[-1].append(example)
    rng.shuffle(found)
    return found


def fit(model: Qwen3ForCausalLM, plan: Sequence[Batch], log: Callable[[str], None] = print) -> None:
    """Train on the batches in order with AdamW; each step averages over its taught tokens."""
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
        lr=PEAK_LR,
        betas=(0.9, 0.98),
        fused=True,
    )
    model.train()
    start, seen, losses = time.perf_counter(), 0, []
    for step, batch in enumerate(plan, 1):
        for group in optimizer.param_groups:
            group["lr"] = PEAK_LR * rate_share(step / len(plan))
        loss = batch_loss(model, batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += sum(len(example.tokens_T) for example in batch)
        losses.append(loss.item())
        if step % _LOG_EVERY == 0 or step == len(plan):
            speed = seen / (time.perf_counter() - start)
            mean = sum(losses) / len(losses)
            log(f"step {step}/{len(plan)}  loss {mean:.4f}  {seen:,} tokens  {speed:,.0f}/s")
            losses.clear()
    model.eval()


def rate_share(done: float) -> float:
    """Return the share of the peak rate after a share of the steps: up, level, down."""
    return min(1.0, done / WARMUP, max(0.01, (1 - done) / (1 - DECAY_FROM)))


def batch_loss(model: Qwen3ForCausalLM, batch: Batch) -> Tensor:
    """Return the mean negative log-likelihood of the taught tokens."""
    longest = max(len(example.tokens_T) for example in batch)
    # Padding is on the right, which the taught positions of a causal model never see.
    pads = [[0] * (longest - len(example.tokens_T)) for example in batch]
    pairs = list(zip(batch, pads, strict=True))
    tokens_BT = torch.tensor([example.tokens_T + pad for example, pad in pairs])
    taught_BT = torch.tensor([example.taught_T + pad for example, pad in pairs], dtype=torch.bool)
    hidden_BTD = model.model(input_ids=tokens_BT[:, :-1], use_cache=False).last_hidden_state
    logits_NV = model.lm_head(hidden_BTD[taught_BT[:, 1:]])
    return torch.nn.functional.cross_entropy(logits_NV, tokens_BT[:, 1:][taught_BT[:, 1:]])


def epochs(examples: Sequence[Example], count: int, rng: Random) -> Iterator[Batch]:
    """Yield the batches of ``count`` epochs, each shuffled anew."""
    for _ in range(count):
        yield from batches(examples, rng)
