"""Demonstrations: episodes of an environment that went well, for a supervised stage to imitate.

Each is a list of turns with the tokens that the model is to write, in the very form in which the
model would sample them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define

from rlc.envs.base import AsyncEpisode
from rlc.envs.build import PlayableEnv
from rlc.envs.gem.oracles import Oracle, find_oracle
from rlc.envs.history import chunks_of, encoded_reply
from rlc.plan.records import SftPlan
from rlc.runtime.guard.meter import Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Rollout, RunError, Turn
from rlc.runtime.rollouts.credit import episode_credit
from rlc.runtime.rollouts.environments import close_all
from rlc.runtime.rollouts.tasks import Task, TaskStream, new_cursor
from rlc.runtime.stages.samples import Play, Sample, Sampler, collect, model_player
from rlc.service.interface import SamplingClient

MOST_TRIES = 20  # episodes played for each demonstration that is asked for


async def demonstrations(
    folder: RunFolder,
    stage: SftPlan,
    env: PlayableEnv,
    client: SamplingClient | None,
    meter: Meter,
    tokenizer: Any,
    on_progress: Callable[[int, int], None],
) -> list[Sample]:
    """Return the demonstrations of a stage in the order of their tasks, played by the model of
    ``client``, or by the environment's oracle if that is None.

    Raise RunError if too few episodes reach the reward that the plan asks for.
    """
    data, name = stage.data, env.plan.name
    assert data.count is not None
    least = data.min_reward
    assert least is not None
    if client is None:
        oracle = find_oracle(env.plan)
        assert oracle is not None, "the rules of the checker ensure it"
        play: Play = OraclePlayer(oracle, tokenizer).play
    else:
        play = model_player(client, env.plan.rollouts, stage.model.context, meter)
    names = ("demonstrations", stage.name)
    stream = TaskStream({name: env}, new_cursor([name]), folder.plan.seed, names)
    sampler = Sampler(folder, stage.name, stream, stage.model, play, meter if client else None)
    good, played = await collect(
        sampler,
        data.count,
        MOST_TRIES * data.count,
        lambda group: [one for one in group if one.sequences and one.reward >= least],
        on_progress,
    )
    if len(good) < data.count:
        raise RunError(
            f"only {len(good)} of {played} episodes of `{name}` reached the reward of {least:g} "
            f"that demonstrations need; {data.count} are wanted",
            "lower `min_reward` or `n`",
        )
    return good


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
