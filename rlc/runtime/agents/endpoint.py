"""The endpoint of an environment's agents: one server on this machine, where each episode has an
address and a key of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from rlc.runtime.agents.episode import MODEL, AgentEpisode, AgentModel
from rlc.service.chats.model import ChatModel
from rlc.service.chats.prompts import Message
from rlc.service.http import RefusedRequest, serving
from rlc.service.inference.endpoint import Caller
from rlc.service.inference.routes import endpoint_app

if TYPE_CHECKING:
    pass


@frozen
class EndpointAddress:
    """See :class:`rlc.envs.base.AgentEndpoint`."""

    url: str
    key: str
    episode: AgentEpisode
    model: str = MODEL

    def transcript(self) -> Sequence[Message]:
        return self.episode.transcript


@define(eq=False)
class AgentsEndpoint:
    """Where agents ask, as many at a time as have ``places``. It starts with the first of them."""

    tokenizer: Any
    renderer: Any
    places: asyncio.Semaphore
    _addresses: dict[str, EndpointAddress] = field(factory=dict, init=False)
    _server: asyncio.Task[None] | None = field(default=None, init=False)
    _url: asyncio.Future[str] | None = field(default=None, init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)

    @asynccontextmanager
    async def address(self, episode: AgentEpisode) -> AsyncIterator[EndpointAddress]:
        """An address for the requests of one episode, while the block runs."""
        session, url = secrets.token_hex(8), await self._started()
        key = f"rlc-{secrets.token_hex(16)}"
        address = EndpointAddress(f"{url}/s/{session}", key, episode)
        self._addresses[session] = address
        try:
            yield address
        finally:
            del self._addresses[session]

    def names(self) -> Mapping[str, float]:
        """See :class:`rlc.service.inference.endpoint.Models`."""
        return {MODEL: 0.0}

    async def find(self, name: str, caller: Caller) -> ChatModel:
        """Return the model of an episode, by whatever name. Raise Refused for an episode that is
        over or never was, or another's key."""
        address = self._addresses.get(caller.session or "")
        if address is None or not compare_digest(caller.key or "", address.key):
            said = "No episode that is under way has this address and key."
            raise RefusedRequest(401, said, code="invalid_api_key")
        return address.episode.model(AgentModel, name, episode=address.episode)

    async def close(self) -> None:
        """End the server. Safe to call twice."""
        self._closing.set()
        if self._server is not None:
            await self._server

    async def _started(self) -> str:
        if self._url is None:
            self._url = asyncio.get_running_loop().create_future()
            self._server = asyncio.create_task(self._serve(self._url))
        return await asyncio.shield(self._url)

    async def _serve(self, url: asyncio.Future[str]) -> None:
        """Serve until it is closed: the server is opened and closed by one task."""
        try:
            async with serving(endpoint_app(self)) as address:
                url.set_result(address)
                await self._closing.wait()
        except Exception as error:
            if url.done():
                raise
            url.set_exception(error)
