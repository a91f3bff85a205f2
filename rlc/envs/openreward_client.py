"""OpenReward's SDK (0.1.167), with retries of a busy server and plain errors.

An environment is on OpenReward's own servers, or on the user's own at a ``base_url``. A server that
is over its limit (429) or still starting (503) is asked again, while the clock of the episode
stands still; every other failure is an EnvError in plain words.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from attrs import define, field, frozen

from rlc.catalog import OPENREWARD_KEY
from rlc.chat import EnvError
from rlc.envs.deadlines import waiting

_T = TypeVar("_T")

KEY = OPENREWARD_KEY.variable
BUSY_STATUS = (429, 503)  # over its limit; still starting
PATIENCE = 600.0  # seconds during which a busy server is asked again
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0


@frozen
class ServerAddress:
    """Where the recipe says that an environment is. ``secrets`` are names of variables."""

    id: str
    variant: str | None
    base_url: str | None
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, env_id: str, args: Mapping[str, Any]) -> ServerAddress:
        return cls(env_id, args["variant"], args["base_url"], tuple(args["secrets"]))

    def missing(self) -> list[str]:
        key = [KEY] if self.base_url is None and not os.environ.get(KEY) else []
        return key + [name for name in self.secrets if _secret(name) is None]


@define(eq=False)
class Connection:
    """One environment on one server, for as long as its event loop runs."""

    address: ServerAddress
    _client: Any = field(default=None, init=False)
    _env: Any = field(default=None, init=False)
    _connecting: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def splits(self) -> list[str]:
        env = await self.environment()
        return list(await self._ask(env.list_splits))

    async def count(self, split: str) -> int:
        env = await self.environment()
        return int(await self._ask(lambda: env.num_tasks(split)))

    async def scores_groups(self) -> bool:
        env = await self.environment()
        return bool(await self._ask(env.supports_score_group))

    async def required_secrets(self) -> list[str]:
        """Return the secrets that the environment needs; own servers do not report them."""
        if self.address.base_url is not None:
            return []
        env = await self.environment()
        return list(await self._ask(env.list_required_secrets))

    async def session(self, split: str, index: int) -> Any:
        env = await self.environment()

        async def begin() -> Any:
            session = env.session(split=split, index=index, secrets=self._secrets())
            try:
                return await session.__aenter__()
            except BaseException:
                await end_session(session)
                raise

        with waiting():
            return await self._ask(begin)

    async def call(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Make a call within a session, and repeat it while the server is busy."""
        with ExitStack() as pause:
            token = _PAUSE.set(pause)
            try:
                return await self._ask(call)
            finally:
                _PAUSE.reset(token)

    async def environment(self) -> Any:
        """Return the SDK's environment. Raise EnvError if the server has none of that name."""
        async with self._connecting:
            if self._env is None:
                address = self.address
                self._client = sdk().AsyncOpenReward()
                env = self._client.environments.get(address.id, base_url=address.base_url)
                env.client.trace_configs.append(_trace())
                env.variant = await self._variant(env)
                self._env = env
            return self._env

    async def close(self) -> None:
        client, self._client, self._env = self._client, None, None
        if client is not None:
            await client.environments.aclose()

    async def _variant(self, env: Any) -> str | None:
        """Return the name of the environment: for unknown ones a server would take its first."""
        asked, base_url = self.address.variant, self.address.base_url
        if base_url is None:
            return asked

        async def listed() -> list[str]:
            async with env.client.get("/list_environments") as response:
                response.raise_for_status()
                names: list[str] = await response.json()
                return names

        names = await self._ask(listed)
        own = asked or self.address.id.rpartition("/")[2].lower()
        if own in names:
            return own
        if asked is None and len(names) == 1:
            return None
        there = ", ".join(f"`{name}`" for name in names)
        raise EnvError(
            f"the server at {base_url} has no environment `{own}`; it has {there}"
            + ("" if asked else ': say which with `variant = "…"`')
        )

    def _secrets(self) -> dict[str, Any]:
        """Return secrets by name. The SDK knows where the common ones may be sent, and sends others
        only to the environment."""
        known = sdk().api.sandboxes.secrets.WELL_KNOWN_SECRETS
        values = {name: _secret(name) for name in self.address.secrets}
        return {name: v if name in known else (v, []) for name, v in values.items()}

    async def _ask(self, call: Callable[[], Awaitable[_T]]) -> _T:
        pause, clock = _FIRST_PAUSE, asyncio.get_running_loop().time
        give_up = clock() + PATIENCE
        while True:
            try:
                return await call()
            except EnvError:
                raise
            except Exception as error:
                wished = _busy(error)
                if wished is None or clock() > give_up:
                    raise explained(error, self.address) from error
            with waiting():
                await asyncio.sleep(min(max(wished, pause), _LONGEST_PAUSE))
            pause *= 2


async def end_session(session: Any) -> None:
    """End a session, even one that has not fully begun; do not wait for a silent server."""
    try:
        async with asyncio.timeout(8.0):
            await session.__aexit__(None, None, None)
    except Exception as error:  # it is over either way, and the server cleans up
        sdk().log_utils.get_logger("rlc").debug("session not ended", error=str(error))


def explained(error: Exception, address: ServerAddress) -> EnvError:
    status, errors = getattr(error, "status", None), sdk().api.errors
    where = address.base_url or "OpenReward"
    if isinstance(error, sdk().api.environments.types.AuthenticationError):
        given = "is not set" if not os.environ.get(KEY) else "is refused"
        return EnvError(f"{where} asks for a key, and {KEY} {given}")
    if isinstance(error, errors.MaxRetriesError) and error.errors:
        return explained(error.errors[-1], address)
    if status in _STATUS:
        return EnvError(f"{where} {_STATUS[status].format(id=address.id)} ({status})")
    if status is not None:
        return EnvError(f"{where} answered {status}: {_line(error)}")
    if isinstance(error, errors.ToolFailed):
        return EnvError(f"a tool of `{address.id}` failed: {_line(error)}")
    if isinstance(error, errors.SessionTerminatedError):
        return EnvError(f"the session of `{address.id}` ended: {error.reason}")
    if isinstance(error, errors.ScoreGroupFailed):
        return EnvError(f"`{address.id}` could not score a group: {_line(error)}")
    if isinstance(error, ValueError):
        return EnvError(_line(error))
    return EnvError(f"{where} cannot be reached: {_line(error)}")


_STATUS = {
    402: "has no credit left for this key",
    403: "does not let this key play `{id}`",
    404: "has no environment `{id}`; names are case-sensitive",
    429: "is over its limit for `{id}`, and was so for ten minutes",
    503: "did not get `{id}` started in ten minutes",
}


@cache
def sdk() -> Any:
    """Import the package, without logs on standard output. Raise EnvError if it is missing."""
    os.environ.setdefault("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
    os.environ.setdefault("OPENREWARD_LOG_LEVEL", "CRITICAL")
    try:
        package = importlib.import_module("openreward")
    except ImportError as error:
        raise EnvError("OpenReward is not installed: pip install 'rlc[openreward]'") from error
    return package


def _secret(name: str) -> str | None:
    return os.environ.get(name) or os.environ.get(name.upper())


def _line(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _busy(error: Exception) -> float | None:
    """Return the pause in seconds that a busy server asks for; None for any other error. All tries
    of a repeated call must have been refused: otherwise it may have run."""
    tries: Sequence[Any] = getattr(error, "errors", None) or [error]
    if any(getattr(one, "status", None) not in BUSY_STATUS for one in tries):
        return None
    return float(getattr(tries[-1], "retry_after", None) or 0.0)


# The pause of the current call: the SDK repeats a refused request by itself, and the time that it
# waits counts against no deadline.
_PAUSE: ContextVar[ExitStack | None] = ContextVar("pause", default=None)


def _trace() -> Any:
    """Begin the pause of a call when its request is refused; end it when the next one begins."""
    from aiohttp import TraceConfig

    async def begins(*_: Any) -> None:
        if (pause := _PAUSE.get()) is not None:
            pause.close()

    async def answered(_session: Any, _context: Any, params: Any) -> None:
        pause = _PAUSE.get()
        if pause is not None and params.response.status in BUSY_STATUS:
            pause.close()
            pause.enter_context(waiting())

    config = TraceConfig()
    config.on_request_start.append(begins)
    config.on_request_end.append(answered)
    config.freeze()
    return config
