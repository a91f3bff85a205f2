"""Episodes, played side by side"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker import types

from rlc.algo import draw
from rlc.emit.pieces.datums import joined
from rlc.emit.pieces.job import *
from rlc.emit.pieces.prompts import model_input
from rlc.emit.pieces.records import Env, Episode, Turn
from rlc.seeds import derive_seed, sample_seed


@dataclass
class Player:
    """Plays tasks with one snapshot of the weights."""

    sampler: Any
    repeats: bool  # the service gives all samples of a request the same random numbers
    if TURNS:
        asked: int = 0  # replies, those of failed episodes included

    async def play(self, env: Env, number: int) -> list[Episode]:
        """All episodes of a task; their first replies come from one request."""
        seed = derive_seed(SEED, "task", STAGE, env.name, number)
        games = await env.tasks.open(number, derive_seed(seed, "env"), env.group)
        replies = await self.begin(env, games[0], env.group, seed)
        rows = enumerate(zip(games, replies, strict=True))
        members = (self.member(env, number, seed, at, *row) for at, row in rows)
        if IS_CREDITED:
            played = list(await asyncio.gather(*members))
            if env.credit is not None:
                env.credit([one for one in played if one.turns])
            return played
        return list(await asyncio.gather(*members))

    async def begin(self, env: Env, game: Any, count: int, seed: int) -> list[Any]:
        prompts, seed = env.prompts(), derive_seed(seed, "open")
        return await self.sample(env, prompts.observe(game.first), prompts.stop, count, seed)

    async def member(
        self, env: Env, task: int, seed: int, at: int, game: Any, reply: Any
    ) -> Episode:
        """An episode, played again from its beginning if it fails; in the end without turns."""
        own = derive_seed(seed, "member", at)
        for attempt in range(1, RETRIES + 2):
            try:
                return Episode(env.name, task, await self.turns(env, game, reply, own))
            except Exception as error:  # whatever an environment raises
                print(f"an episode of {env.name} failed: {error!r}", flush=True)
            if attempt <= RETRIES:
                own = derive_seed(seed, "member", at, "attempt", attempt)
                game = (await env.tasks.open(task, derive_seed(seed, "env"), env.group))[at]
                (reply,) = await self.begin(env, game, 1, own)
        return Episode(env.name, task, [])

    async def turns(self, env: Env, game: Any, reply: Any, seed: int) -> list[Turn]:
        prompts, played, shown, done = env.prompts(), list[Turn](), game.first, False
        while not done:
            prompt, more = prompts.observe(shown), env.params.max_tokens
            if CONTEXT is not None and len(prompt) + more > CONTEXT:
                break
            if MAX_PROMPT_TOKENS is not None and len(prompt) > MAX_PROMPT_TOKENS:
                break
            if MAX_EPISODE_TOKENS is not None and whole(played, prompt) + more > MAX_EPISODE_TOKENS:
                break
            if played:
                own = derive_seed(seed, "turn", len(played))
                (reply,) = await self.sample(env, prompt, prompts.stop, 1, own)
            tokens, logprobs = list(reply.tokens), list(reply.logprobs)
            shown, reward, done = await game.step(prompts.reply(tokens))
            played.append(Turn(prompt, tokens, logprobs, reward))
            if IS_CREDITED:
                played[-1].is_last, played[-1].is_cut_off = done, reply.stop_reason == "length"
            if IS_RECORDED:
                played[-1].sequence_id = reply.sequence_id
        return played

    async def sample(self, env: Env, prompt: list[Any], stop: Any, n: int, seed: int) -> list[Any]:
        """So many replies, each asked for alone where one request would repeat them."""
        seed, text = seed % 2**31, model_input(prompt)
        seeds = [sample_seed(seed, at) for at in range(n)] if self.repeats and n > 1 else [seed]
        each = [env.params.model_copy(update={"seed": one, "stop": stop}) for one in seeds]
        asked = (self.sampler.sample(text, n // len(seeds), params) for params in each)
        if TURNS:
            self.asked += n
        return [reply for one in await asyncio.gather(*asked) for reply in one.sequences]


def whole(played: Sequence[Turn], prompt: list[Any]) -> int:
    """How many tokens an episode has with its next prompt."""
    return sum(len(tokens) for tokens, *_ in joined([*played, Turn(prompt, [], [], 0.0)]))


async def repeats(sampler: Any, tokenizer: Any) -> bool:
    """Whether all samples of one seeded request are the same."""
    words = types.ModelInput.from_ints(tokenizer.encode("A few words to begin with."))
    response = await sampler.sample(words, 4, types.SamplingParams(max_tokens=8, seed=1))
    return len({tuple(sequence.tokens) for sequence in response.sequences}) == 1


def next_tasks(envs: Sequence[Env], cursor: dict[str, int], count: int) -> list[tuple[Env, int]]:
    """The next tasks, by their numbers."""
    if IS_MIXTURE:
        known = {env.name: env for env in envs}
        drawn = draw({env.name: env.weight for env in envs}, cursor, count)
        return [(known[name], number) for name, number in drawn]
    (env,) = envs
    cursor[env.name] += count
    return [(env, cursor[env.name] - left) for left in range(count, 0, -1)]


async def play_turns(player: Player, envs: Sequence[Env], cursor: dict[str, int]) -> list[Episode]:
    """Episodes side by side, again and again, until they have so many turns, or have lost as many
    replies."""
    played: list[Episode] = []
    while (turns := sum(len(episode.turns) for episode in played)) < TURNS:
        if player.asked - turns >= TURNS:
            print(f"{turns} turns of {TURNS}: too many episodes failed", flush=True)
            break
        tasks = next_tasks(envs, cursor, PARALLEL)
        groups = await asyncio.gather(*(player.play(*task) for task in tasks))
        played += [episode for group in groups for episode in group if episode.turns]
    return played
