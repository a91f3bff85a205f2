"""Episodes, played side by side"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker import types

from rlc.data import draw
from rlc.emit.pieces.job import CONTEXT, RETRIES, SAMPLING, SEED, STAGE, STOPS
from rlc.emit.pieces.prompts import model_input
from rlc.emit.pieces.records import Env, Episode, Turn
from rlc.seeds import derive_seed, sample_seed


@dataclass
class Player:
    """Plays tasks with one snapshot of the weights."""

    sampler: Any
    repeats: bool  # the service gives all samples of a request the same random numbers
    used: Counter[str]  # tokens of each kind
    asked: int = 0  # replies, those of failed episodes included

    async def play(self, env: Env, number: int) -> list[Episode]:
        """All episodes of a task; their first replies come from one request."""
        seed = derive_seed(SEED, "task", STAGE, env.name, number)
        tasks = await env.tasks.open(number, derive_seed(seed, "env"), env.group)
        replies = await self.begin(env, tasks[0], env.group, seed)
        members = range(env.group)
        return await asyncio.gather(
            *(self.member(env, number, seed, m, tasks[m], replies[m]) for m in members)
        )

    async def begin(self, env: Env, task: Any, count: int, seed: int) -> Sequence[Any]:
        history = env.prompts()
        prompt = history.observe(task.first)
        return await self.sample(env, prompt, history.stop, count, derive_seed(seed, "open"))

    async def member(
        self, env: Env, number: int, seed: int, member: int, task: Any, reply: Any
    ) -> Episode:
        """An episode, played again from its beginning if it fails; without turns in the end."""
        own = derive_seed(seed, "member", member)
        for attempt in range(RETRIES + 1):
            try:
                if attempt:
                    own = derive_seed(seed, "member", member, "attempt", attempt)
                    tasks = await env.tasks.open(number, derive_seed(seed, "env"), env.group)
                    task = tasks[member]
                    (reply,) = await self.begin(env, task, 1, own)
                return Episode(env.name, number, await self.turns(env, task, reply, own))
            except Exception as error:  # whatever an environment raises
                print(f"an episode of {env.name} failed: {error}", flush=True)
                if STOPS and attempt == RETRIES:
                    raise
        return Episode(env.name, number, [])

    async def turns(self, env: Env, task: Any, reply: Any, seed: int) -> list[Turn]:
        history, played, shown, done = env.prompts(), list[Turn](), task.first, False
        while not done:
            prompt = history.observe(shown)
            if is_too_long(prompt, played, env.max_tokens):
                break
            if played:
                own = derive_seed(seed, "turn", len(played))
                (reply,) = await self.sample(env, prompt, history.stop, 1, own)
            tokens, logprobs = list(reply.tokens), list(reply.logprobs)
            shown, reward, done = await task.step(history.reply(tokens))
            played.append(Turn(prompt, tokens, logprobs, reward, reply.sequence_id))
        return played

    async def sample(
        self, env: Env, prompt: list[Any], stop: Any, count: int, seed: int
    ) -> list[Any]:
        """``count`` replies, each asked for alone where one request would repeat them."""
        seed, shown = seed % 2**31, model_input(prompt)
        alone = self.repeats and count > 1
        seeds = [sample_seed(seed, i) for i in range(count)] if alone else [seed]
        settings: dict[str, Any] = {"temperature": env.temperature, "stop": stop, **SAMPLING}
        each = [types.SamplingParams(max_tokens=env.max_tokens, seed=s, **settings) for s in seeds]
        responses = await asyncio.gather(
            *(self.sampler.sample(shown, count // len(seeds), one) for one in each)
        )
        replies = [reply for response in responses for reply in response.sequences]
        hits = sum(response.prompt_cache_hit_tokens for response in responses)
        self.used["prefill"] += len(seeds) * len(prompt) - hits
        self.used["cached"] += hits + (count - len(seeds)) * len(prompt)
        self.used["sampled"] += sum(len(reply.tokens) for reply in replies)
        self.asked += count
        return replies


def is_too_long(prompt: list[Any], _played: Sequence[Turn], reply: int) -> bool:
    """Whether another reply could exceed the model's context."""
    return CONTEXT is not None and len(prompt) + reply > CONTEXT


async def repeats(sampler: Any, tokenizer: Any) -> bool:
    """Whether all samples of one seeded request are the same."""
    words = tokenizer.encode("A few words to begin with.")
    params = types.SamplingParams(max_tokens=8, temperature=1.0, seed=1)
    response = await sampler.sample(types.ModelInput.from_ints(words), 4, params)
    return len({tuple(sequence.tokens) for sequence in response.sequences}) == 1


def next_tasks(envs: Sequence[Env], cursor: dict[str, int], count: int) -> list[tuple[Env, int]]:
    """The next tasks of a mixture."""
    known = {env.name: env for env in envs}
    drawn = draw({env.name: env.weight for env in envs}, cursor, count)
    return [(known[name], number) for name, number in drawn]


async def play_groups(player: Player, tasks: Sequence[tuple[Env, int]]) -> list[Episode]:
    """The episodes of some tasks that did not fail."""
    groups = await asyncio.gather(*(player.play(env, number) for env, number in tasks))
    played = [episode for group in groups for episode in group if episode.turns]
    if not played:
        raise RuntimeError("every episode failed")
    return played


async def play_turns(
    player: Player, envs: Sequence[Env], cursor: dict[str, int], count: int, parallel: int
) -> list[Episode]:
    """Episodes side by side, again and again, until they have so many turns, or have lost as many
    replies."""
    played: list[Episode] = []
    while (turns := sum(len(episode.turns) for episode in played)) < count:
        if player.asked - turns >= count:
            print(f"{turns} turns of {count}: too many episodes failed", flush=True)
            break
        played += await play_groups(player, next_tasks(envs, cursor, parallel))
    return played
