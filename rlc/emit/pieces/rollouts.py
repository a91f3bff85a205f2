"""Episodes, played side by side"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker import types

from rlc.algo import draw
from rlc.emit.pieces.job import CONTEXT, RETRIES, SEED, STAGE
from rlc.emit.pieces.prompts import model_input
from rlc.emit.pieces.records import Env, Episode, Turn
from rlc.seeds import derive_seed, sample_seed


@dataclass
class Player:
    """Plays tasks with one snapshot of the weights."""

    sampler: Any
    repeats: bool  # the service gives all samples of a request the same random numbers

    async def play(self, env: Env, number: int) -> list[Episode]:
        """All episodes of a task; their first replies come from one request."""
        seed = derive_seed(SEED, "task", STAGE, env.name, number)
        games = await env.tasks.open(number, derive_seed(seed, "env"), env.group)
        replies = await self.begin(env, games[0], env.group, seed)
        rows = enumerate(zip(games, replies, strict=True))
        members = (self.member(env, number, seed, at, *row) for at, row in rows)
        return list(await asyncio.gather(*members))

    async def begin(self, env: Env, game: Any, count: int, seed: int) -> list[Any]:
        prompts, seed = env.prompts(), derive_seed(seed, "open")
        return await self.sample(env, prompts.observe(game.first), prompts.stop, count, seed)

    async def member(
        self, env: Env, number: int, seed: int, at: int, game: Any, reply: Any
    ) -> Episode:
        """An episode, played again from its beginning if it fails; in the end without turns."""
        own = derive_seed(seed, "member", at)
        for attempt in range(1, RETRIES + 2):
            try:
                return Episode(env.name, number, await self.turns(env, game, reply, own))
            except Exception as error:  # whatever an environment raises
                print(f"an episode of {env.name} failed: {error!r}", flush=True)
            if attempt <= RETRIES:
                own = derive_seed(seed, "member", at, "attempt", attempt)
                games = await env.tasks.open(number, derive_seed(seed, "env"), env.group)
                game = games[at]
                (reply,) = await self.begin(env, game, 1, own)
        return Episode(env.name, number, [])

    async def turns(self, env: Env, game: Any, reply: Any, seed: int) -> list[Turn]:
        prompts, played, shown, done = env.prompts(), list[Turn](), game.first, False
        while not done:
            prompt = prompts.observe(shown)
            if is_too_long(prompt, played, env.params.max_tokens):
                break
            if played:
                own = derive_seed(seed, "turn", len(played))
                (reply,) = await self.sample(env, prompt, prompts.stop, 1, own)
            tokens, logprobs = list(reply.tokens), list(reply.logprobs)
            shown, reward, done = await game.step(prompts.reply(tokens))
            played.append(Turn(prompt, tokens, logprobs, reward, reply.sequence_id))
        return played

    async def sample(
        self, env: Env, prompt: list[Any], stop: Any, count: int, seed: int
    ) -> list[Any]:
        """``count`` replies, each asked for alone where one request would repeat them."""
        seed, text = seed % 2**31, model_input(prompt)
        alone = self.repeats and count > 1
        seeds = [sample_seed(seed, i) for i in range(count)] if alone else [seed]
        each = [env.params.model_copy(update={"seed": one, "stop": stop}) for one in seeds]
        asked = (self.sampler.sample(text, count // len(seeds), params) for params in each)
        return [reply for one in await asyncio.gather(*asked) for reply in one.sequences]


def is_too_long(prompt: list[Any], _played: Sequence[Turn], reply: Any) -> bool:
    """Whether another reply could exceed the model's context."""
    return CONTEXT is not None and len(prompt) + reply > CONTEXT


async def repeats(sampler: Any, tokenizer: Any) -> bool:
    """Whether all samples of one seeded request are the same."""
    words = types.ModelInput.from_ints(tokenizer.encode("A few words to begin with."))
    response = await sampler.sample(words, 4, types.SamplingParams(max_tokens=8, seed=1))
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


@dataclass
class CountingPlayer(Player):
    """A player that counts the replies it asks for, those of failed episodes included."""

    asked: int = 0

    async def sample(self, *request: Any) -> list[Any]:
        replies = await super().sample(*request)
        self.asked += len(replies)
        return replies


async def play_turns(
    player: CountingPlayer, envs: Sequence[Env], cursor: dict[str, int], count: int, parallel: int
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
