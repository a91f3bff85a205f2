"""Environments of tinker-cookbook, which take and give tokens"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tinker import types
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.types import EnvGroupBuilder


class Tokens:
    """Prompts and replies as they are; if it ``goes_on``, a turn begins with those before it."""

    def __init__(self, tokenizer: Any, goes_on: bool = False) -> None:
        self.tokenizer, self.stop, self.goes_on = tokenizer, None, goes_on
        self.before: list[Any] = []

    def observe(self, shown: tuple[types.ModelInput, Any]) -> list[Any]:
        prompt, self.stop = shown
        tokens = flat(prompt)
        if self.goes_on and tokens[: len(self.before)] != self.before:
            what = "the environment writes earlier turns anew: end it in the recipe with"
            raise SystemExit(f"{what} `|> chat(history = template)`")
        self.before = tokens
        return tokens

    def reply(self, tokens: list[int]) -> tuple[list[int], str]:
        """A reply, and whether it ended by itself."""
        self.before = [*self.before, *tokens]
        text, ends = self.tokenizer.decode(tokens), [*(self.stop or ())]
        ends.append(self.tokenizer.eos_token_id)
        done = any(text.endswith(e) if isinstance(e, str) else e in tokens[-1:] for e in ends)
        return tokens, "stop" if done else "length"


class Groups:
    """The groups of a data set, batch after batch, epoch after epoch."""

    def __init__(self, data: Any) -> None:
        self.data, self.size = data, len(data.get_batch(0))
        self.count = self.size * (len(data) - 1) + len(data.get_batch(len(data) - 1))

    async def open(self, number: int, _seed: int, _size: int) -> list[Member]:
        batch, at = divmod(number % self.count, self.size)
        builder = self.data.get_batch(batch)[at]
        usual = [one.compute_group_rewards for one in (EnvGroupBuilder, ProblemGroupBuilder)]
        if type(builder).compute_group_rewards not in usual:
            raise TypeError(f"{type(builder).__name__} compares the episodes of a group")
        envs = await builder.make_envs()
        firsts = await asyncio.gather(*(env.initial_observation() for env in envs))
        return [Member(env, first) for env, first in zip(envs, firsts, strict=True)]


@dataclass
class Member:
    env: Any
    first: Any

    async def step(self, action: tuple[list[int], str]) -> tuple[Any, float, bool]:
        tokens, reason = action
        result = await self.env.step(tokens, extra={"stop_reason": reason})
        shown = result.next_observation, result.next_stop_condition
        return shown, float(result.reward), result.episode_done


def flat(prompt: types.ModelInput) -> list[Any]:
    """The tokens of a prompt. An image or a sound stands in the first of its places."""
    made: list[Any] = []
    for chunk in prompt.chunks:
        tokens = getattr(chunk, "tokens", None)
        made += [chunk, *[None] * (chunk.length - 1)] if tokens is None else tokens
    return made
