"""Episodes, played side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tinker import types

from rlc.emit.pieces.games import Game
from rlc.emit.pieces.prompts import History
from rlc.emit.pieces.records import Env, Episode, Turn, Usage
from rlc.emit.pieces.seeds import stream


@dataclass
class Player:
    """Plays tasks with one snapshot of the weights."""

    sampler: Any
    games: Mapping[str, Game]
    new_history: Callable[[Env], History]
    usage: Usage
    seed: int
    stage: str
    context: int | None  # tokens
    top_p: float = 1.0
    top_k: int = -1
    retries: int = 0  # of a failed episode
    then_stop: bool = False  # the run, where none helped; else it is left out
    repeats: bool = False  # the service gives all samples of a request the same seed
    asked: int = 0  # replies, those of failed episodes included

    async def play(self, env: Env, number: int) -> list[Episode]:
        """All episodes of a task; their first replies come from one request."""
        seed = stream(self.seed, "task", self.stage, env.name, number)
        first, copies = self.games[env.name].group(stream(seed, "env"), env.group)
        opening = await self.open(env, first, env.group, seed)
        members = [
            self.member(env, number, member, seed, first, *state)
            for member, state in enumerate(zip(copies, opening, strict=True))
        ]
        return [episode for episode in await asyncio.gather(*members) if episode.turns]

    async def open(self, env: Env, first: str, count: int, seed: int) -> Sequence[Any]:
        history = self.new_history(env)
        prompt = history.observe(first)
        return await self.sample(env, prompt, history.stop, count, stream(seed, "open"))

    async def member(
        self,
        env: Env,
        number: int,
        member: int,
        seed: int,
        first: str,
        copy: Any,
        opening: Any,
    ) -> Episode:
        own = stream(seed, "member", member)
        acts = stream(stream(seed, "env"), "member", member)
        for attempt in range(self.retries + 1):
            try:
                if attempt:
                    own = stream(seed, "member", member, "attempt", attempt)
                    game = self.games[env.name]
                    first, copies = game.group(stream(seed, "env"), env.group)
                    copy = copies[member]
                    (opening,) = await self.open(env, first, 1, own)
                return await self.episode(env, number, first, copy, opening, own, acts)
            except Exception as error:  # whatever an environment raises
                cause = error
        print(f"an episode of {env.name} failed: {cause}", flush=True)
        if self.then_stop:
            raise cause
        return Episode(env.name, number)

    async def episode(
        self,
        env: Env,
        number: int,
        text: str,
        copy: Any,
        reply: Any,
        own: int,
        acts: int,
    ) -> Episode:
        history, played, done = self.new_history(env), Episode(env.name, number), False
        while not done:
            prompt = history.observe(text)
            if self.context is not None and len(prompt) + env.max_tokens > self.context:
                break
            turn = len(played.turns)
            if turn:
                seed = stream(own, "turn", turn)
                (reply,) = await self.sample(env, prompt, history.stop, 1, seed)
            tokens, logprobs = list(reply.tokens), list(reply.logprobs)
            action = history.reply(tokens)
            text, reward, done = self.games[env.name].step(copy, acts, turn + 1, action)
            name = str(getattr(reply, "sequence_id", ""))
            played.turns.append(Turn(prompt, tokens, logprobs, reward, name))
        return played

    async def sample(
        self, env: Env, prompt: list[int], stop: Any, count: int, seed: int
    ) -> Sequence[Any]:
        params = types.SamplingParams(
            max_tokens=env.max_tokens,
            temperature=env.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=stop,
            seed=seed % 2**31,
        )
        self.asked += count
        sequences = await self.drawn(types.ModelInput.from_ints(prompt), count, params)
        self.usage.sampled += sum(len(sequence.tokens) for sequence in sequences)
        return sequences

    async def drawn(self, prompt: Any, count: int, params: Any) -> list[Any]:
        """``count`` replies. Where a server gives all samples of a seeded request the
        same random numbers, each is asked for alone, with a seed of its own."""
        seeds = [params.seed]
        if count > 1 and self.repeats:
            names = [f"{params.seed}/{index}".encode() for index in range(count)]
            digests = [blake2b(name, digest_size=4).digest() for name in names]
            seeds = [int.from_bytes(digest) % 2**31 for digest in digests]
        each = [params.model_copy(update={"seed": seed}) for seed in seeds]
        responses = await asyncio.gather(
            *(self.sampler.sample(prompt, count // len(seeds), one) for one in each)
        )
        hits = sum(response.prompt_cache_hit_tokens for response in responses)
        self.usage.prefill += len(seeds) * prompt.length - hits
        self.usage.cached += hits + (count - len(seeds)) * prompt.length
        return [sequence for response in responses for sequence in response.sequences]


async def repeats(sampler: Any, tokenizer: Any) -> bool:
    """Whether all samples of one seeded request are the same."""
    words = tokenizer.encode("A few words to begin with.")
    params = types.SamplingParams(max_tokens=8, temperature=1.0, seed=1)
    response = await sampler.sample(types.ModelInput.from_ints(words), 4, params)
    return len({tuple(sequence.tokens) for sequence in response.sequences}) == 1


def draw(
    envs: Sequence[Env], cursor: dict[str, int], count: int
) -> list[tuple[Env, int]]:
    """The next tasks: the environment furthest behind its share comes first."""
    total, drawn = sum(env.weight for env in envs), []
    for _ in range(count):
        after = sum(cursor.values()) + 1
        behind = [env.weight / total * after - cursor[env.name] for env in envs]
        env = envs[behind.index(max(behind))]
        drawn.append((env, cursor[env.name]))
        cursor[env.name] += 1
    return drawn


async def play_groups(
    player: Player, envs: Sequence[Env], cursor: dict[str, int], groups: int
) -> list[Episode]:
    """The episodes of so many tasks."""
    tasks = [player.play(env, number) for env, number in draw(envs, cursor, groups)]
    played = [episode for group in await asyncio.gather(*tasks) for episode in group]
    if not played:
        raise RuntimeError("every episode failed")
    return played


async def play_turns(
    player: Player, envs: Sequence[Env], cursor: dict[str, int], turns: int, wave: int
) -> list[Episode]:
    """Waves of episodes side by side, until they have so many turns, or have lost as
    many replies."""
    played: list[Episode] = []
    while (found := sum(len(episode.turns) for episode in played)) < turns:
        if player.asked - found >= turns:
            print(f"{found} turns of {turns}: too many episodes failed", flush=True)
            break
        played += await play_groups(player, envs, cursor, wave)
    return played
