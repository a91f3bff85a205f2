"""The endpoint of an environment's agents: one server on this machine, where each episode has an
address and a key of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hmac import compare_digest
from typing import Any

from attrs import define, field, frozen

from rlc.envs.deadlines import place
from rlc.envs.tool_chat import ToolChatHistory
from rlc.runtime.agents.conversations import Conversations, Message
from rlc.runtime.agents.requests import Requests
from rlc.service.chats.model import ChatModel
from rlc.service.http.inference.endpoint import Answered, Caller
from rlc.service.http.inference.routes import endpoint_app
from rlc.service.http.refusals import Refused
from rlc.service.http.server import serving

MODEL = "policy"  # what agents are told that the model is called; any other name will do


@frozen
class Address:
    """See :class:`rlc.envs.base.AgentEndpoint`."""

    url: str
    key: str
    requests: Requests
    model: str = MODEL

    def transcript(self) -> Sequence[Message]:
        return self.requests.transcript


@define(eq=False)
class AgentsEndpoint:
    """Where agents ask, as many at a time as have ``places``. It starts with the first of them."""

    tokenizer: Any
    renderer: Any
    places: asyncio.Semaphore
    _addresses: dict[str, Address] = field(factory=dict, init=False)
    _server: asyncio.Task[None] | None = field(default=None, init=False)
    _url: asyncio.Future[str] | None = field(default=None, init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)

    def conversations(self) -> Conversations:
        """Return those of an episode that begins."""
        return Conversations(partial(ToolChatHistory, self.renderer))

    @asynccontextmanager
    async def free_place(self) -> AsyncIterator[None]:
        """Wait until another agent may run, and hold its place."""
        async with place(self.places):
            yield

    @asynccontextmanager
    async def address(self, requests: Requests) -> AsyncIterator[Address]:
        """An address for the requests of one episode, while the block runs."""
        session, url = secrets.token_hex(8), await self._started()
        key = f"rlc-{secrets.token_hex(16)}"
        address = Address(f"{url}/s/{session}", key, requests)
        self._addresses[session] = address
        try:
            yield address
        finally:
            del self._addresses[session]

    def names(self) -> Mapping[str, float]:
        """See :class:`rlc.service.http.inference.endpoint.Models`."""
        return {MODEL: 0.0}

    async def find(self, name: str, caller: Caller) -> ChatModel:
        """Return the model of an episode, by whatever name. Raise Refused for an episode that is
        over or never was, or another's key."""
        address = self._addresses.get(caller.session or "")
        if address is None or not compare_digest(caller.key or "", address.key):
            said = "No episode that is under way has this address and key."
            raise Refused(401, said, code="invalid_api_key")
        requests: Any = address.requests  # it samples, and nothing else is asked of it
        return ChatModel(
            name=name,
            base=MODEL,
            client=requests,
            tokenizer=self.tokenizer,
            renderer=self.renderer,
            context=None,  # limits are those of the recipe
            end_tokens=frozenset({self.tokenizer.eos_token_id}),
            write=requests.write,
            decide=requests.decide,
        )

    def answered(self, answered: Answered) -> None:
        """Hand a request that was answered to its episode, unless that is over."""
        if (address := self._addresses.get(answered.caller.session or "")) is not None:
            address.requests.answered(answered)

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
            async with serving(endpoint_app(self, answered=self.answered)) as address:
                url.set_result(address)
                await self._closing.wait()
        except Exception as error:
            if url.done():
                raise
            url.set_exception(error)
