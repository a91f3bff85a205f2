"""Measure a tiny model in the real environments: ``python -m tools.tiny.measure [DIR]``.

Prints mean rewards, sampled at temperature 1 and greedy, and the share of replies with a
well-formed answer. These are the figures of MODEL_CARD.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from attrs import define, field, frozen
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
)

from rlc.service.tiny import path
from tools.tiny.demonstrations import SEED_RANGE, TASKS, Task, prompt_after
from tools.tiny.games import Game

MAX_NEW_TOKENS = 16
_WELL_FORMED = re.compile(r"\\boxed\{[^{}]+\}")


@frozen
class Measured:
    """Means over the episodes of one task."""

    reward: float
    well_formed: float
    tokens: float


@define
class _Episode:
    game: Game
    texts: list[str] = field(factory=list)
    tokens: list[int] = field(factory=list)
    reward: float = 0.0
    done: bool = False


def measure(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    task: Task,
    episodes: int,
    sampled: bool,
    seed: int = 0,
) -> Measured:
    """Play ``episodes`` side by side, as a run with that task's prompt format would."""
    torch.manual_seed(seed)
    rng = Random(seed)
    # The words are the environment's own, those that a run asks, not the ones of the training.
    game = Game(task.env_id, concat=task.frame is not None)
    everyone = [_Episode(game.another()) for _ in range(episodes)]
    for episode in everyone:
        episode.texts.append(episode.game.reset(rng.randrange(SEED_RANGE)))
    running = everyone
    replies: list[str] = []
    while running:
        for episode in running:
            delta = prompt_after(task, episode.texts)
            new = tokenizer.encode(delta, add_special_tokens=False)
            episode.tokens = new if task.frame else episode.tokens + new
        prompts = [episode.tokens for episode in running]
        for episode, reply in zip(running, _replies(model, prompts, sampled), strict=True):
            closed = reply[-1:] == [tokenizer.eos_token_id]
            episode.tokens += reply + ([] if closed else [tokenizer.eos_token_id])
            replies.append(str(tokenizer.decode(reply, skip_special_tokens=True)))
            seen = episode.game.step(replies[-1])
            episode.texts.append(seen.text)
            episode.reward, episode.done = episode.reward + seen.reward, seen.done
        running = [episode for episode in running if not episode.done]
    return Measured(
        reward=sum(episode.reward for episode in everyone) / episodes,
        well_formed=sum(bool(_WELL_FORMED.search(reply)) for reply in replies) / len(replies),
        tokens=sum(len(episode.tokens) for episode in everyone) / episodes,
    )


def _replies(
    model: Qwen3ForCausalLM, prompts: Sequence[list[int]], sampled: bool
) -> list[list[int]]:
    """Generate one reply for each prompt, up to and with its end of turn."""
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    longest = max(map(len, prompts))
    tokens_BT = torch.tensor([[pad] * (longest - len(p)) + p for p in prompts])
    mask_BT = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    # The whole distribution when sampling; unset when greedy, or transformers warns.
    whole = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    how = whole if sampled else dict.fromkeys(whole)
    with torch.inference_mode():
        out_BT = model.generate(
            tokens_BT,
            attention_mask=mask_BT,
            do_sample=sampled,
            max_new_tokens=MAX_NEW_TOKENS,
            **how,
        )
    rows = [row[longest:].tolist() for row in out_BT]
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def main() -> None:
    """Measure the tasks of the demonstrations."""
    parser = argparse.ArgumentParser(description="Measure a tiny model in its environments.")
    parser.add_argument("folder", type=Path, nargs="?", default=path())
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--match", default="", help="only environments with this in their id")
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    for task in (task for task in TASKS if arguments.match in task.env_id):
        for name in ("sampled", "greedy"):
            got = measure(model, tokenizer, task, arguments.episodes, name == "sampled")
            print(
                f"{task.env_id:28} {task.frame or 'chat':14} {name:8} reward {got.reward:.3f}"
                f"  well-formed {got.well_formed:.3f}  tokens {got.tokens:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
