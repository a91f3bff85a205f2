"""GEM's guide to Tinker, its low-level loop on a game, turn by turn, through the unmodified SDK.

    python benchmarks/peers/low_level.py --url URL --model FOLDER --puzzles PUZZLES.json

As the guide's script does it: parallel environments under one of GEM's observation wrappers, the
observation in a template, one request and one datum for every turn, discounted returns normalised
over the batch, importance sampling, gradient and update submitted together, then the next weights.
Only the puzzles are given, a list of seeds for every step, in place of seeds by the clock. With
`--batch` only so many turns of a step are trained, drawn at random (the guide's default is 128);
0 is all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gem
import numpy as np
import tinker
from gem.wrappers.wrapper_factory import get_wrapper_fns
from tinker import types

WORDS = "You are playing language games. Make valid actions to win.\nObservation: "
ANSWER = "\nPlease reason step by step, and put your final answer within \\boxed{}."
TEMPLATES = {
    "qwen3_game": ("<|im_start|>user\n" + WORDS, ANSWER + "<|im_end|>\n<|im_start|>assistant\n"),
    "no": ("", ""),
}


@dataclass
class Turn:
    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    reward: float
    value: float = 0.0


async def play(
    env: Any, seed: int, sampler: Any, tokenizer: Any, options: argparse.Namespace
) -> list[Turn]:
    """One episode; every turn is a prompt of its own."""
    before, after = TEMPLATES[options.template]
    params = types.SamplingParams(max_tokens=options.max_tokens)
    seen, _ = env.reset(seed=seed)
    turns, done = list[Turn](), False
    while not done:
        prompt = tokenizer.encode(before + seen + after, add_special_tokens=False)
        reply = await sampler.sample_async(
            prompt=types.ModelInput.from_ints(prompt), num_samples=1, sampling_params=params
        )
        (sequence,) = reply.sequences
        action = tokenizer.decode(sequence.tokens, skip_special_tokens=True)
        seen, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        turns.append(Turn(prompt, list(sequence.tokens), list(sequence.logprobs), float(reward)))
    value = 0.0
    for turn in reversed(turns):
        turn.value = value = turn.reward + options.gamma * value
    return turns


def datum(turn: Turn, advantage: float) -> types.Datum:
    """Targets are the inputs shifted by one; only sampled tokens carry an advantage."""
    tokens = turn.prompt + turn.tokens
    before, sampled = len(turn.prompt) - 1, len(turn.tokens)
    arrays: dict[str, Any] = {
        "target_tokens": np.array(tokens[1:], dtype=np.int64),
        "logprobs": np.array([0.0] * before + turn.logprobs, dtype=np.float32),
        "advantages": np.array([0.0] * before + [advantage] * sampled, dtype=np.float32),
    }
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={key: types.TensorData.from_numpy(a) for key, a in arrays.items()},
    )


def datums(turns: list[Turn], batch: int, random: np.random.Generator) -> list[types.Datum]:
    """Return batch normalisation (arXiv 2510.01051), then as many turns as are asked for."""
    values = np.array([turn.value for turn in turns])
    advantages = (values - values.mean()) / (values.std(ddof=1) + 1e-9)
    chosen = random.permutation(len(turns))[: batch or None]
    return [datum(turns[i], float(advantages[i])) for i in chosen]


async def collect(
    sampler: Any, tokenizer: Any, seeds: list[int], options: argparse.Namespace
) -> list[Turn]:
    """The turns of episodes played side by side, one for each seed."""
    envs = [gem.make("game:Sudoku-v0-easy") for _ in seeds]
    for wrap in get_wrapper_fns(options.wrappers, tokenizer=tokenizer):
        envs = [wrap(env) for env in envs]
    games = zip(envs, seeds, strict=True)
    played = await asyncio.gather(*(play(*one, sampler, tokenizer, options) for one in games))
    return [turn for episode in played for turn in episode]


async def train(options: argparse.Namespace) -> None:
    puzzles: list[list[int]] = json.loads(options.puzzles.read_text())
    service = tinker.ServiceClient(base_url=options.url)
    training = await service.create_lora_training_client_async(options.model, rank=8)
    tokenizer = training.get_tokenizer()
    adam = types.AdamParams(learning_rate=4e-5, beta1=0.9, beta2=0.95, eps=1e-8)
    random = np.random.default_rng(0)
    for step, seeds in enumerate(puzzles):
        saved = await (await training.save_weights_for_sampler_async(f"{step:06d}")).result_async()
        sampler = await service.create_sampling_client_async(model_path=saved.path)
        turns = await collect(sampler, tokenizer, seeds, options)
        data = datums(turns, options.batch, random)
        gradient = await training.forward_backward_async(data, "importance_sampling")
        update = await training.optim_step_async(adam)
        await gradient.result_async()
        await update.result_async()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--puzzles", type=Path, required=True)
    parser.add_argument("--wrappers", default="concat")
    parser.add_argument("--template", choices=list(TEMPLATES), default="qwen3_game")
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--batch", type=int, default=0)
    os.environ |= {"TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}
    asyncio.run(train(parser.parse_args()))


if __name__ == "__main__":
    main()
