"""What tests of chats share: the included model's tokenizer and renderers, and an environment."""

from __future__ import annotations

from functools import cache
from typing import Any

from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan, StepPlan


@cache
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    from rlc.service.tiny import path

    return AutoTokenizer.from_pretrained(str(path()))


@cache
def renderer(name: str = "qwen3_instruct") -> Any:
    from tinker_cookbook.renderers import get_renderer

    return get_renderer(name, tokenizer())


def encode(text: str) -> list[int]:
    tokens: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return tokens


def env(*wrappers: StepPlan) -> EnvPlan:
    rollouts = RolloutsPlan(8, 1.0, 16, None, None)
    reward = RewardPlan("turns", None, None, None)
    guess = "game:GuessTheNumber-v0-easy"
    return EnvPlan("g", 1.0, "gem", guess, {}, wrappers, 4, rollouts, reward)
