"""Closing episodes and environments: always, in bounded time, and whatever closing itself does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from rlc.envs.build import PlayableEnv
from rlc.envs.deadlines import span

CLOSE_SECONDS = 10.0  # that an episode, or an environment, may take to close

_log = logging.getLogger(__name__)


class Closable(Protocol):
    async def close(self) -> None: ...


async def close_all(things: Iterable[Closable]) -> None:
    """Close them side by side, to the end even if cancelled meanwhile. One that fails to close
    is told in the log: what it was played for is not lost with it."""
    closing = asyncio.gather(*map(_close, things))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


async def close_envs(envs: Iterable[PlayableEnv]) -> None:
    """Let go of what the environments hold, their workers too."""
    await close_all([env.source for env in envs])


async def _close(thing: Closable) -> None:
    try:
        async with span(CLOSE_SECONDS, "closing it"):
            await thing.close()
    except Exception as error:
        _log.warning("an environment did not close: %s: %s", type(error).__name__, error)
