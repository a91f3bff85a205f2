"""The environments of a stage: made from its plan, and closed in bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rlc.data.errors import DataError
from rlc.envs.base import EnvError
from rlc.envs.build import PlayableEnv, build_env
from rlc.envs.deadlines import Span
from rlc.envs.responders import Responders
from rlc.envs.views import Shown
from rlc.plan.environments import EnvPlan
from rlc.runtime.records import RunError

CLOSE_SECONDS = 10.0  # that an episode, or an environment, may take to close

_log = logging.getLogger(__name__)


class Closable(Protocol):
    async def close(self) -> None: ...


def build_envs(
    envs: Iterable[EnvPlan],
    tokenizer: Any,
    renderer: str,
    responders: Responders,
    views: Callable[[str], Mapping[str, Shown]] = lambda _: {},
) -> dict[str, PlayableEnv]:
    """Return the environments by name, with what ``views`` says that others are shown of each.
    Raise RunError if one of them cannot be made."""
    try:
        return {
            env.name: build_env(env, tokenizer, renderer, responders, views(env.name))
            for env in envs
        }
    except (DataError, EnvError) as error:
        raise RunError(str(error), error.hint) from error


async def close_envs(envs: Iterable[PlayableEnv]) -> None:
    """Release the resources of environments, including their workers."""
    await close_all(env.source for env in envs)


async def close_all(things: Iterable[Closable]) -> None:
    """Close episodes or sources concurrently, even if cancelled in the meantime.

    One that fails to close is logged: its results are not lost because of that.
    """

    async def close(thing: Closable) -> None:
        try:
            async with Span(CLOSE_SECONDS, "closing it"):
                await thing.close()
        except Exception as error:
            _log.warning("an environment did not close: %s: %s", type(error).__name__, error)

    closing = asyncio.gather(*map(close, things))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise
