"""One episode of an agent, from its start to its reward."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import Any

from attrs import evolve

from rlc.chat.turns import Observation
from rlc.envs.agents.programs import AgentError
from rlc.envs.base import RunningEpisode, validated
from rlc.envs.deadlines import Deadline, place
from rlc.runtime.agents.endpoint import AgentsEndpoint, EndpointAddress
from rlc.runtime.agents.episode import AgentEpisode
from rlc.runtime.rollouts.attempts import Attempt, Replies
from rlc.runtime.rollouts.environments import call_environment

_CUT_OFF = Observation("", 0.0, True, truncated=True)


async def run_agent(player: Replies, attempt: Attempt, episode: RunningEpisode) -> str:
    """Run an agent to its end; return how its episode ended. ``attempt`` has its turns.

    One that a limit ends, or that fails when it is told of one, has a reward of 0. Raise what the
    agent raises, AgentError if it has asked nothing, and OverdueError if it neither asks nor ends.
    """
    endpoint, limits = attempt.task.env.endpoint, attempt.task.env.plan.rollouts
    assert isinstance(endpoint, AgentsEndpoint)
    attempt.about = episode.first.about
    async with (
        place(endpoint.places),
        Deadline(limits.step_timeout, "the agent, between two requests,") as idle,
    ):
        asked = AgentEpisode(player, attempt, endpoint.tokenizer, endpoint.renderer, idle)
        async with endpoint.address(asked) as address:
            try:
                seen, ended = await _ended(asked, episode, address)
            finally:
                await asked.close()
    attempt.seconds["environment"] += idle.worked  # it waited while replies were sampled
    if not attempt.turns:
        what = f"the agent of `{attempt.task.env.plan.name}` ended without an answered request"
        raise AgentError(what, "its client takes the `base_url` and the `api_key` of the episode")
    last = attempt.turns[-1]
    attempt.turns[-1] = evolve(
        last,
        reward=seen.reward,
        metrics={**asked.metrics(), **seen.metrics},
        components=seen.components,
        verdicts=seen.verdicts,
    )
    return ended


async def _ended(
    asked: AgentEpisode, episode: RunningEpisode, address: EndpointAddress
) -> tuple[Observation, str]:
    """How a run ended: what was seen last, and by what."""

    async def run() -> Observation:
        asked.context = copy_context()  # the service knows from it who waits for a reply
        return await episode.run(address)

    running = asyncio.ensure_future(call_environment(run()))
    try:
        awaited: set[asyncio.Future[Any]] = {running, asked.over}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if asked.over.done():
            return _CUT_OFF, asked.over.result()
        try:
            seen = validated(running.result())
        except Exception:
            if asked.refused is None:
                raise
            return _CUT_OFF, asked.refused
        return seen, "truncated" if seen.truncated else "done"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
