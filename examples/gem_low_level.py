"""GEM on Tinker, the low-level way: REINFORCE with return batch normalisation (arXiv 2510.01051).

    rlc serve &                                     # or the hosted service, with TINKER_API_KEY
    export TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-local
    python examples/gem_low_level.py --model tiny --env game:GuessTheNumber-v0-easy

The loop that GEM's guide describes, on one page. `recipes/sudoku.rl` is the same job as a recipe.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from typing import Any

import gem
import numpy as np
import tinker
from tinker import types


@dataclass
class Turn:
    """One reply of the model: what it saw, what it said, and the return from there on."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    value: float = 0.0


async def play(env: Any, seed: int, sampler: Any, tokenizer: Any, args: Any) -> list[Turn]:
    """One episode as a chat; rewards become discounted returns, turn by turn."""
    text, info = env.reset(seed=seed)
    messages, turns, rewards, done = [], list[Turn](), list[float](), False
    while not done:
        shown = f"{info.get('prefix', '')}{text}{info.get('suffix', '')}"
        messages.append({"role": "user", "content": shown})
        encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        prompt = list(encoded["input_ids"] if hasattr(encoded, "keys") else encoded)
        params = types.SamplingParams(max_tokens=args.max_tokens, stop=[tokenizer.eos_token_id])
        reply = await sampler.sample(types.ModelInput.from_ints(prompt), 1, params)
        (sequence,) = reply.sequences
        action = tokenizer.decode(sequence.tokens, skip_special_tokens=True)
        text, reward, terminated, truncated, info = env.step(action)
        messages.append({"role": "assistant", "content": action})
        turns.append(Turn(prompt, list(sequence.tokens), list(sequence.logprobs)))
        rewards.append(float(reward))
        done = terminated or truncated
    value = 0.0
    for turn, reward in zip(reversed(turns), reversed(rewards), strict=True):
        turn.value = value = reward + args.gamma * value
    return turns


async def collect(
    envs: list[Any], step: int, sampler: Any, tokenizer: Any, args: Any
) -> list[list[Turn]]:
    """Episodes from all environments side by side, until there are enough turns."""
    episodes: list[list[Turn]] = []
    while sum(map(len, episodes)) < args.batch:
        first = (step * 1_000 + len(episodes)) * len(envs)
        plays = [play(env, first + i, sampler, tokenizer, args) for i, env in enumerate(envs)]
        episodes += await asyncio.gather(*plays)
    return episodes


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
        loss_fn_inputs={k: types.TensorData.from_numpy(v) for k, v in arrays.items()},
    )


async def train(args: Any) -> None:
    generator = np.random.default_rng(args.seed)
    service = tinker.ServiceClient()
    training = await service.create_lora_training_client(args.model, rank=args.rank, seed=args.seed)
    tokenizer = training.get_tokenizer()
    envs = [gem.make(args.env) for _ in range(args.num_env)]
    adam = types.AdamParams(learning_rate=args.learning_rate, beta1=0.9, beta2=0.95, eps=1e-8)
    for step in range(args.steps):
        sampler = await training.save_weights_and_get_sampling_client()
        episodes = await collect(envs, step, sampler, tokenizer, args)
        turns = [turn for episode in episodes for turn in episode]
        values = np.array([turn.value for turn in turns])
        spread = values.std(ddof=1)
        advantages = (values - values.mean()) / (spread + 1e-9) if spread > 0 else 0 * values
        chosen = generator.permutation(len(turns))[: args.batch]
        data = [datum(turns[i], float(advantages[i])) for i in chosen]
        gradient = training.forward_backward(data, "importance_sampling")
        update = training.optim_step(adam)
        await gradient
        await update
        reward = float(np.mean([episode[0].value for episode in episodes]))
        print(f"step {step + 1}: return {reward:.3f}, {len(turns)} turns", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="GEM on Tinker, the low-level way")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--num-env", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128, help="turns a step trains on")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(train(parser.parse_args()))


if __name__ == "__main__":
    main()
