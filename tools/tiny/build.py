"""Rebuild the tiny model from nothing: ``python -m tools.tiny.build [--out DIR]``.

Tokenizer, demonstrations, training, and a folder that Hugging Face loads. Takes about ten
minutes on two free cores. Needs the ``gem`` and ``local`` extras; no network.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from random import Random

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlc.service.tiny import path
from tools.tiny.demonstrations import TASKS, Example, encode, play
from tools.tiny.phrases import find_phrases
from tools.tiny.tokenizer import build_tokenizer, save_tokenizer
from tools.tiny.train import epochs, fit, new_model

CLEAN_EPOCHS = 2
NOISY_EPOCHS = 1


def main() -> None:
    """Write configuration, weights (bf16) and tokenizer to a folder."""
    parser = argparse.ArgumentParser(description="Rebuild the tiny chat model from nothing.")
    parser.add_argument("--out", type=Path, default=path(), help="the folder to write")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    out, seed = arguments.out, arguments.seed
    tokenizer = build_tokenizer(find_phrases())
    save_tokenizer(tokenizer, out)
    print(f"tokenizer: {len(tokenizer)} tokens", flush=True)
    clean, noisy = (_examples(tokenizer, noisy, seed) for noisy in (False, True))
    rng = Random(seed)
    # Skill first, planted slips last: the model keeps the one and samples with the other.
    plan = [*epochs(clean, CLEAN_EPOCHS, rng), *epochs(noisy, NOISY_EPOCHS, rng)]
    model = new_model(tokenizer, seed)
    fit(model, plan, log=lambda line: print(line, flush=True))
    save_model(model, tokenizer, out)


def _examples(tokenizer: PreTrainedTokenizerFast, noisy: bool, seed: int) -> list[Example]:

    start = time.perf_counter()
    examples: list[Example] = []
    for task in TASKS:
        played = list(play(task, noisy, seed))
        examples += [encode(demonstration, tokenizer) for demonstration in played]
        reward = sum(one.reward for one in played) / len(played)
        print(f"{task.env_id} {task.frame or 'chat'} noisy={noisy}: reward {reward:.3f}")
    tokens = sum(len(example.tokens_T) for example in examples)
    print(f"{tokens:,} tokens, {time.perf_counter() - start:.0f} s", flush=True)
    return examples


def save_model(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """bf16 weights, and a generation config that samples the whole distribution."""
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.to(torch.bfloat16).save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors writes for the owner only; a package is for everyone


if __name__ == "__main__":
    main()
