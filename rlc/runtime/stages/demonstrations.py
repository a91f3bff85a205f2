"""Demonstrations: episodes of an environment that went well, for a supervised stage to imitate.

Each is a list of turns with the tokens that the model is to write, in the very form in which the
model would sample them.
"""

from __future__ import annotations

from typing import Any

from attrs import define

from rlc.chat import chunks_of, encoded_reply
from rlc.envs import AsyncEpisode, Oracle, PlayableEnv, find_oracle
from rlc.plan import Demonstrations, Training
from rlc.runtime.records import Rollout, RunError, Turn
from rlc.runtime.rollouts.credit import episode_credit
from rlc.runtime.rollouts.environments import close_all
from rlc.runtime.rollouts.tasks import Task, TaskStream, new_cursor
from rlc.runtime.stages.base import Setup
from rlc.runtime.stages.samples import EpisodeSampler, collect, model_player, opened_env

MOST_TRIES = 20  # episodes played for each demonstration that is asked for


async def demonstrations(
    setup: Setup, stage: Training, data: Demonstrations
) -> list[dict[str, Any]]:
    """Return the demonstrations of a stage in the order of their tasks, played by the model that it
    begins with, or by the environment's oracle.

    Raise RunError if too few episodes reach the reward that the plan asks for.
    """
    model, least, plan, count = stage.model, data.min_reward, data.env, data.count
    folder, tokenizer, meter = setup.folder, setup.tokenizer, setup.meter
    async with opened_env(setup, plan, tokenizer, model.renderer, meter) as env:
        if data.policy == "model":
            client = (await setup.weights.snapshot(0)).client
            play = model_player(client, plan.rollouts, model.context, meter)
        else:
            oracle = find_oracle(plan)
            assert oracle is not None, "the rules of the checker ensure it"
            play = OraclePlayer(oracle, tokenizer).play
        names = ("demonstrations", stage.name)
        stream = TaskStream({plan.name: env}, new_cursor([plan.name]), folder.plan.seed, names)
        paid = meter if data.policy == "model" else None
        good, played = await collect(
            EpisodeSampler(folder, stage.name, stream, model, play, paid),
            count,
            MOST_TRIES * count,
            lambda group: [one for one in group if one.sequences and one.reward >= least],
            setup.observer.progress,
        )
    if len(good) < count:
        raise RunError(
            f"only {len(good)} of {played} episodes of `{plan.name}` reached the reward of "
            f"{least:g} that demonstrations need; {count} are wanted",
            "lower `min_reward` or `n`",
        )
    return [one.example() for one in good]


@define
class OraclePlayer:
    """Plays tasks as one who knows their answers."""

    oracle: Oracle
    tokenizer: Any

    async def play(self, task: Task) -> list[Rollout]:
        """Return the one episode of a task."""
        (episode,) = await task.env.source.open(task.key, [0])
        try:
            turns = await self._turns(task.env, episode)
        finally:
            await close_all([episode])
        plan = task.env.plan
        credit = episode_credit(plan.reward, turns, ended_by_itself=True)
        return [Rollout(plan.name, task.number, 0, "", tuple(turns), "done", credit)]

    async def _turns(self, env: PlayableEnv, episode: AsyncEpisode) -> list[Turn]:
        history, seen = env.new_history(), episode.first
        texts, turns = list[str](), list[Turn]()
        while not seen.done:
            texts.append(seen.text)
            prompt, reply = history.observe(seen), self.oracle(texts)
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
