"""An environment whose policy may also call the tools of an MCP server.

    reply                     what happens
    calls of tools            made in order; their results are the next messages
    calls that are wrong      the model is shown why, and continues
    anything else             goes to the environment, which never sees the calls
    calls after the last use  refused; the next reply goes to the environment, whatever it is

Turns with calls have no reward of their own. Metrics of every turn count from the start of the
episode: ``tool_calls``, ``tool_errors`` and ``parse_errors``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from rlc.chat.prompts import calls_of, conversation, readable, text_of, unread_calls
from rlc.chat.turns import Action, EnvError, Observation
from rlc.envs.base import AsyncEpisode, AsyncSource, JoiningEpisode, TaskKey
from rlc.envs.mcp.server import McpServer, Plain, ToolResult
from rlc.plan.units import elapsed


@define(eq=False)
class McpSource:
    """A source with the tools of a server. See :class:`rlc.envs.base.AsyncSource`.

    ``args`` are those of the wrapper. The server is started with the first episode and shared by
    all, or, ``per = episode``, started for each of them with its first call.
    """

    source: AsyncSource
    args: Mapping[str, Any]
    _server: McpServer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._server = self._new_server()

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        await self._server.start()  # one that has ended is started again
        shared = self.args["per"] == "worker"
        tools, opened = self._server.tools, await self.source.open(task, members)
        if any(isinstance(episode, JoiningEpisode) for episode in opened):
            for episode in opened:
                await episode.close()
            raise EnvError("the members of this game play with each other, without tools")
        return [
            McpEpisode(
                episode,
                _with_tools(episode.first, tools),
                self._server if shared else self._new_server(),
                shared,
                self.args["uses"],
                self.args["timeout"],
            )
            for episode in opened
        ]

    async def close(self) -> None:
        try:
            await self.source.close()
        finally:
            await self._server.close()

    def _new_server(self) -> McpServer:
        return McpServer(self.args["server"], self.args["tools"], self.args["secrets"])


def _with_tools(first: Observation, tools: Sequence[Plain]) -> Observation:
    """The opening observation, with tools besides those that it may have."""
    asked = first.messages or ({"role": "user", "content": first.text},)
    own = asked[0].get("tools") or [] if asked[0]["role"] == "system" else []
    return evolve(first, messages=conversation(asked, [*own, *tools]).messages)


@define(eq=False)
class McpEpisode:
    """See :class:`rlc.envs.base.AsyncEpisode`."""

    episode: AsyncEpisode
    first: Observation
    server: McpServer
    shared: bool
    uses: int
    timeout: float
    _counts: Counter[str] = field(factory=Counter, init=False)

    async def play(self, action: Action) -> Observation:
        """Make the calls of a reply, or pass it on. Raise EnvError if the server is gone."""
        reply: Mapping[str, Any] = action.message or {"content": action.text}
        calls, unread = list(calls_of(reply)), unread_calls(reply)
        spent = self._counts["tool_calls"] + self._counts["parse_errors"] >= self.uses
        if spent or not (calls or unread):
            seen = await self.episode.play(evolve(action, text=text_of(reply)))
            return evolve(seen, metrics={**seen.metrics, **self._metrics()})
        messages = [await self._call(*call) for call in calls]
        messages += unread
        self._counts["parse_errors"] += len(unread)
        return Observation(
            readable(messages), None, metrics=self._metrics(), messages=tuple(messages)
        )

    async def close(self) -> None:
        try:
            await self.episode.close()
        finally:
            if not self.shared:
                await self.server.close()

    async def _call(self, call_id: str, name: str, arguments: str) -> Plain:
        result = await self._result(name, arguments)
        self._counts["tool_errors"] += result.failed
        message = {"role": "tool", "tool_call_id": call_id, "name": name}
        return {**message, "content": result.content}

    async def _result(self, name: str, arguments: str) -> ToolResult:
        if self._counts["tool_calls"] >= self.uses:
            return ToolResult("Error: no calls are left; answer now.", failed=True)
        self._counts["tool_calls"] += 1
        try:
            given = json.loads(arguments)
        except ValueError as error:
            return ToolResult(f"Error: the arguments are not JSON: {error}", failed=True)
        if not isinstance(given, dict):
            return ToolResult("Error: the arguments are not a JSON object", failed=True)
        if not self.shared:
            await self.server.start()
        if name not in (tool["name"] for tool in self.server.tools):
            return ToolResult(f"Error: there is no tool {name!r}", failed=True)
        try:
            result = await self.server.call(name, given, self.timeout)
        except TimeoutError:
            late = f"Error: the call took longer than {elapsed(self.timeout)}"
            return ToolResult(late, failed=True)
        failed = result.failed and isinstance(result.content, str)
        return evolve(result, content=f"Error: {result.content}") if failed else result

    def _metrics(self) -> dict[str, float]:
        kinds = ("tool_calls", "tool_errors", "parse_errors")
        return {kind: float(self._counts[kind]) for kind in kinds}
