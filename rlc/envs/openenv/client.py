"""A session of an OpenEnv server (openenv 0.10): JSON messages over a WebSocket, one session each.

Only the protocol is used, so that the package need not be installed here.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from attrs import define, field

from rlc.chat.turns import ContractError, EnvError
from rlc.errors import first_line

Plain = dict[str, Any]
_MOST = 1 << 26  # bytes of a message
_LOCAL = ("127.0.0.1", "localhost", "::1")
_ASKING = 20.0  # seconds


@define(eq=False)
class OpenEnvSession:
    """One episode's session; the server frees it when the connection is closed."""

    url: str
    _socket: Any = field(default=None, init=False)

    async def reset(self, arguments: Mapping[str, Any]) -> Plain:
        """Connect and begin; return what is observed, with ``reward`` and ``done``."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake

        host = urlsplit(self.url).hostname
        address = f"ws{self.url.removeprefix('http')}/ws"
        try:
            proxy: dict[str, Any] = {"proxy": None} if host in _LOCAL else {}
            self._socket = await connect(address, max_size=_MOST, **proxy)
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise EnvError(f"the OpenEnv server {self.url} does not answer: {error}") from error
        return await self._asked("reset", dict(arguments))

    async def step(self, action: Mapping[str, Any]) -> Plain:
        """Take one action. Raise RefusedError if the environment does not take it."""
        return await self._asked("step", dict(action))

    async def close(self) -> None:
        """End the session. Safe to call twice."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _asked(self, kind: str, data: Plain) -> Plain:
        """The answer to a message. One that is given up on leaves the session unusable: its answer
        would be taken for the next one's."""
        from websockets.exceptions import ConnectionClosed

        if self._socket is None:
            raise EnvError(f"the session of {self.url} is closed")
        try:
            with suppress(ConnectionClosed):  # what it has said before it closed is read
                await self._socket.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(await self._socket.recv())
        except ConnectionClosed as error:
            raise EnvError(f"the OpenEnv server {self.url} ended the session: {error}") from error
        given = answer.get("data", {})
        if answer.get("type") == "error":
            said = f"{given.get('message')} ({given.get('code')})"
            if given.get("code") == "VALIDATION_ERROR" and kind == "step":
                raise RefusedError(said)
            if given.get("code") == "CAPACITY_REACHED":
                said += "; `sessions = …` in the recipe is how many it has"
            raise EnvError(f"the OpenEnv server {self.url} refused to {kind}: {said}")
        if not isinstance(given.get("observation"), dict):
            raise ContractError(f"the OpenEnv server {self.url} gave no observation")
        return given  # type: ignore[no-any-return]


class RefusedError(EnvError):
    """An action that the environment does not take; the session goes on."""


def schema_of(url: str) -> Plain:
    """The JSON schema of a server's actions. Blocks. Raise EnvError if it gives none."""
    opener = urllib.request.build_opener()
    if urlsplit(url).hostname in _LOCAL:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/schema", timeout=_ASKING) as answer:
            action = json.load(answer)["action"]
    except (URLError, TimeoutError, ValueError, KeyError, OSError) as error:
        why = first_line(error) or type(error).__name__
        raise EnvError(f"the OpenEnv server {url} gives no schema of its actions: {why}") from error
    return dict(action)
