"""The environments of a stage: made from its plan, and closed in bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from attrs import evolve

from rlc.chat import EnvError, ViewChange, fitting_renderer
from rlc.data import DataError
from rlc.envs import Deadline, PlayableEnv, Responders, build_env
from rlc.plan import EnvPlan
from rlc.runtime.records import RunError

CLOSE_SECONDS = 10.0  # that an episode, or an environment, may take to close

_log = logging.getLogger(__name__)


class AsyncClosable(Protocol):
    async def close(self) -> None: ...


def build_envs(
    envs: Iterable[EnvPlan],
    tokenizer: Any,
    renderer: str,
    responders: Responders,
    views: Callable[[str], Mapping[str, ViewChange]] = lambda _: {},
) -> dict[str, PlayableEnv]:
    """Return the environments by name, with what ``views`` says that others are shown of each.
    Raise RunError if one of them cannot be made."""
    try:
        built = [build_env(env, tokenizer, renderer, responders, views(env.name)) for env in envs]
        return {env.plan.name: _with_endpoint(env, tokenizer, renderer) for env in built}
    except (DataError, EnvError) as error:
        raise RunError(str(error), error.hint) from error


def _with_endpoint(env: PlayableEnv, tokenizer: Any, renderer: str) -> PlayableEnv:
    """An environment with the endpoint that its agents ask, if agents play it."""
    if env.plan.agent is None:
        return env
    try:
        from rlc.runtime.rollouts.agent_endpoint import AgentsEndpoint
    except ModuleNotFoundError as error:
        hint = "pip install 'rlc[serve]'"
        what = f"agents are served with a package that is not here: {error.name}"
        raise EnvError(what, hint) from error
    places = asyncio.Semaphore(env.plan.agent.concurrency)
    endpoint = AgentsEndpoint(tokenizer, fitting_renderer(tokenizer, renderer), places)
    return evolve(env, endpoint=endpoint)


async def close_envs(envs: Iterable[PlayableEnv]) -> None:
    """Release the resources of environments, including their workers and endpoints."""
    made = [*envs]
    await close_all([*(env.source for env in made), *filter(None, (env.endpoint for env in made))])


async def close_all(things: Iterable[AsyncClosable]) -> None:
    """Close episodes or sources concurrently, even if cancelled in the meantime.

    One that fails to close is logged: its results are not lost because of that.
    """

    async def close(thing: AsyncClosable) -> None:
        try:
            async with Deadline(CLOSE_SECONDS, "closing it"):
                await thing.close()
        except Exception as error:
            _log.warning("an environment did not close: %s: %s", type(error).__name__, error)

    closing = asyncio.gather(*map(close, things))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise
