"""Programs that own their loop: they are run, and ask the policy through an endpoint."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from rlc.chat import Observation
from rlc.envs import AgentError, Deadline, RunningEpisode, place, validated
from rlc.runtime.rollouts.agent_episode import MODEL, AgentEpisode, AgentModel
from rlc.runtime.rollouts.attempts import Attempt, Replies, call_environment
from rlc.service import Caller, ChatModel, Message, RefusedRequest, endpoint_app, serving

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
