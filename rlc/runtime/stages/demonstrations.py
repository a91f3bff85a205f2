"""Demonstrations: episodes of an environment that went well, for a supervised stage to imitate.

Each is a list of turns with the tokens that the model is to write, in the very form in which the
model would sample them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define

from rlc.catalog.builtins.training import DEFAULT_FAILURE
from rlc.envs.base import AsyncEpisode, EnvError
from rlc.envs.build import PlayableEnv
from rlc.envs.gem.oracles import Oracle, find_oracle
from rlc.envs.history import History, chunks_of
from rlc.plan.records import SamplingPlan, SftPlan
from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout, RunError, Turn, Usage
from rlc.runtime.rollouts.environments import close_all
from rlc.runtime.rollouts.groups import play_tasks
from rlc.runtime.rollouts.player import Player, episode_credit
from rlc.runtime.rollouts.tasks import Task, TaskStream, new_cursor
from rlc.service.interface import SamplingClient

MOST_TRIES = 20  # episodes played for each demonstration that is asked for
_WAVE = 64  # episodes played side by side


@define
class Demonstrator:
    """Plays episodes of one environment until enough of them are good enough."""

    stage: SftPlan
    env: PlayableEnv
    tokenizer: Any
    seed: int
    client: SamplingClient | None  # of the model; None for an oracle
    usage: Usage
    on_progress: Callable[[int, int], None]

    async def play(self) -> list[Rollout]:
        """Return the demonstrations in the order of their tasks.

        Raise RunError if too few episodes reach the reward that the plan asks for.
        """
        data, good, played = self.stage.data, list[Rollout](), 0
        assert data.count is not None
        assert data.min_reward is not None
        names = ("demonstrations", self.stage.name)
        stream = TaskStream(
            {self.env.plan.name: self.env}, new_cursor([self.env.plan.name]), self.seed, names
        )
        while len(good) < data.count and played < MOST_TRIES * data.count:
            wave = await self._wave(stream.take(min(_WAVE, data.count)))
            played += len(wave)
            good += [r for r in wave if r.turns and r.reward >= data.min_reward]
            self.on_progress(min(len(good), data.count), data.count)
        if len(good) < data.count:
            raise RunError(
                f"only {len(good)} of {played} episodes of `{self.env.plan.name}` reached the "
                f"reward of {data.min_reward:g} that demonstrations need; {data.count} are wanted",
                "lower `min_reward` or `n`",
            )
        return good[: data.count]

    async def _wave(self, tasks: Sequence[Task]) -> list[Rollout]:
        if self.client is None:
            oracle = find_oracle(self.env.plan)
            assert oracle is not None, "the rules of the checker ensure it"
            return await all_of(self._by_oracle(task, oracle) for task in tasks)
        rollouts = self.env.plan.rollouts
        player = Player(
            client=self.client,
            sampling=SamplingPlan(rollouts.max_tokens, rollouts.temperature, 1.0, -1, None, None),
            context=self.stage.model.context,
            on_error=DEFAULT_FAILURE,
            usage=self.usage,
        )
        return await play_tasks(player, tasks, lambda: None)

    async def _by_oracle(self, task: Task, oracle: Oracle) -> Rollout:
        (episode,) = await task.env.source.open(task.key, [0])
        try:
            turns = await self._oracle_turns(episode, oracle)
        finally:
            await close_all([episode])
        plan = self.env.plan
        credit = episode_credit(plan.reward, turns, ended_by_itself=True)
        return Rollout(plan.name, task.number, 0, "", tuple(turns), "done", credit)

    async def _oracle_turns(self, episode: AsyncEpisode, oracle: Oracle) -> list[Turn]:
        history, seen = self.env.new_history(), episode.first
        texts, turns = list[str](), list[Turn]()
        while not seen.done:
            texts.append(seen.text)
            prompt, reply = history.observe(seen), oracle(texts)
            tokens = encoded_reply(reply, history, self.tokenizer)
            action = history.reply(tokens)
            after = await episode.play(action)
            zeros, chunks = [0.0] * len(tokens), chunks_of(history)
            turn = Turn(
                prompt, tokens, zeros, seen.text, action.text, after.reward, "stop", chunks=chunks
            )
            turns.append(turn)
            seen = after
        return turns


def encoded_reply(reply: str, history: History, tokenizer: Any) -> list[int]:
    """Return a reply with its end: the history's own stop, or the end-of-sequence token."""
    tokens: list[int] = tokenizer.encode(reply, add_special_tokens=False)
    stop = history.stop
    if stop is None:
        return [*tokens, tokenizer.eos_token_id]
    if not isinstance(stop[0], int):
        raise EnvError("the renderer ends a turn with text, not with a token")
    return [*tokens, stop[0]]
