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

import asyncio
import importlib.util
import json
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import IO, Any, TypeVar

from attrs import define, evolve, field, frozen

from rlc.chat import (
    Action,
    EnvError,
    Observation,
    calls_of,
    conversation,
    readable,
    text_of,
    unread_calls,
)
from rlc.data import server_command
from rlc.envs.base import AsyncEpisode, AsyncSource, JoiningEpisode, TaskKey
from rlc.envs.deadlines import first_cause
from rlc.errors import first_line
from rlc.plan import elapsed

_T = TypeVar("_T")
Plain = dict[str, Any]

_STARTING = 60.0  # seconds within which a server must list its tools: it may be installed first
_ENDED = -32_000  # the code by which the SDK says that the connection was closed


@frozen
class ToolResult:
    """The result of a call: text, or texts and images; ``failed`` if the tool says so."""

    content: str | list[Plain]
    failed: bool


@define(eq=False)
class McpServer:
    """One server. ``secrets`` names variables of the environment that it is given, if it is started
    here; ``allowed`` the tools to offer, all if it is empty."""

    server: str
    allowed: Sequence[str] = ()
    secrets: Sequence[str] = ()
    tools: list[Plain] = field(factory=list, init=False)
    _session: Any = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)
    _starting: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def start(self) -> None:
        """Connect, unless that is done. Raise EnvError if that fails, or a tool is missing."""
        async with self._starting:
            if self._task is not None and not (self._task.done() or self._closing.is_set()):
                return
            await self.close()  # what is left of one that has ended
            self._closing.clear()
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._serve(ready))
            try:
                async with asyncio.timeout(_STARTING):
                    await self._or_end(ready)
            except TimeoutError as error:
                await self.close()
                raise self._failed(f"gave no list of tools in {elapsed(_STARTING)}") from error
            except BaseException:
                await self.close()
                raise

    async def call(self, name: str, arguments: Plain, seconds: float) -> ToolResult:
        """Call a tool. Raise EnvError if the server is gone, TimeoutError if it is too slow."""
        from mcp.shared import exceptions

        refusal = getattr(exceptions, "McpError", None) or exceptions.MCPError  # as of mcp 2
        async with asyncio.timeout(seconds):
            try:
                result = await self._or_end(self._session.call_tool(name, arguments))
            except refusal as error:
                if error.error.code == _ENDED:
                    self._closing.set()
                    raise self._failed("ended during a call") from error
                return ToolResult(first_line(error), failed=True)
        plain = result.model_dump(by_alias=True, exclude_none=True)
        return ToolResult(content_of(plain["content"]), bool(plain.get("isError")))

    async def close(self) -> None:
        """Disconnect; a server that was started here ends. Safe to call twice."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing.set()
        await asyncio.wait({task}, timeout=5.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        from mcp import ClientSession

        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            try:
                async with self._streams(log) as streams, ClientSession(*streams[:2]) as session:
                    await session.initialize()
                    self.tools = await self._listed(session)
                    self._session = session
                    if not ready.done():
                        ready.set_result(None)
                    await self._closing.wait()
            except Exception as error:
                log.seek(0)
                said = [line for line in log.read().splitlines() if line.strip()]
                raise self._failed(_cause(error), *said[-1:]) from error

    @asynccontextmanager
    async def _streams(self, log: IO[str]) -> AsyncIterator[Sequence[Any]]:
        command = server_command(self.server)
        if command is None:
            from mcp.client.streamable_http import streamable_http_client

            async with streamable_http_client(self.server) as streams:
                yield streams
            return
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        given = {name: os.environ[name] for name in self.secrets}
        how = StdioServerParameters(command=command[0], args=command[1:], env=given)
        async with stdio_client(how, errlog=log) as streams:
            yield streams

    async def _listed(self, session: Any) -> list[Plain]:
        listed, cursor = list[Plain](), None
        while True:
            if cursor is None:
                answer = await session.list_tools()
            else:
                from mcp.types import PaginatedRequestParams

                answer = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            page = answer.model_dump(by_alias=True, exclude_none=True)
            listed += page["tools"]
            if (cursor := page.get("nextCursor")) is None:
                break
        names = [tool["name"] for tool in listed]
        if missing := [name for name in self.allowed if name not in names]:
            there = ", ".join(f"`{name}`" for name in names) or "none"
            raise EnvError(f"has no tool `{missing[0]}`; there is {there}")
        return [
            {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": tool["inputSchema"],
            }
            for tool in listed
            if not self.allowed or tool["name"] in self.allowed
        ]

    async def _or_end(self, awaited: Awaitable[_T]) -> _T:
        """Return a result, or raise EnvError if the server ends."""
        assert self._task is not None
        work = asyncio.ensure_future(awaited)
        try:
            await asyncio.wait({work, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self._task.result()
                raise self._failed("was closed")
            return work.result()
        finally:
            work.cancel()

    def _failed(self, what: str, said: str = "") -> EnvError:
        return EnvError(f"the MCP server `{self.server}` {what}" + (f": {said}" if said else ""))


def _cause(error: BaseException) -> str:
    error = first_cause(error)
    if isinstance(error, EnvError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "cannot be started: there is no such command"
    return f"failed: {type(error).__name__}: {first_line(error)}"


def content_of(blocks: Sequence[Mapping[str, Any]]) -> str | list[Plain]:
    """Return the blocks of a result of MCP for a model: text, or texts and images."""
    parts = list[Plain]()
    for block in blocks:
        if block["type"] == "image":
            image = f"data:{block['mimeType']};base64,{block['data']}"
            parts.append({"type": "image", "image": image})
        elif block["type"] == "text":
            parts.append({"type": "text", "text": block["text"]})
        elif "text" in (resource := block.get("resource", {})):
            parts.append({"type": "text", "text": resource["text"]})
        else:
            parts.append({"type": "text", "text": f"[{block['type']}]"})
    if any(part["type"] == "image" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def server_problem(name: str, args: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a wrapper's server, or None. Blocks, also within an event loop."""
    if importlib.util.find_spec("mcp") is None:
        return f"`{name}` needs a package that is not here: pip install 'rlc[mcp]'"
    if lost := [one for one in args["secrets"] if one not in os.environ]:
        return f"`{name}` needs {', '.join(lost)} in the environment or in .env, and it is not set"

    async def ask() -> str | None:
        server = McpServer(args["server"], args["tools"], args["secrets"])
        try:
            await server.start()
            none = f"`{name}`: the MCP server `{server.server}` has no tools"
            return None if server.tools else none
        except EnvError as error:
            return f"`{name}`: {error}"
        finally:
            await server.close()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, ask()).result()


@define(eq=False)
class McpSource:
    """An :class:`rlc.envs.base.AsyncSource` with the tools of a server, which all episodes share,
    or, ``per = episode``, which is started for each of them with its first call."""

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
        episodes, limits = list[AsyncEpisode](), (self.args["uses"], self.args["timeout"])
        for episode in opened:
            first = episode.first
            shown = first.messages or ({"role": "user", "content": first.text},)
            own = shown[0].get("tools") or [] if shown[0]["role"] == "system" else []
            first = evolve(first, messages=conversation(shown, [*own, *tools]).messages)
            server = self._server if shared else self._new_server()
            episodes.append(McpEpisode(episode, first, server, shared, *limits))
        return episodes

    async def close(self) -> None:
        try:
            await self.source.close()
        finally:
            await self._server.close()

    def _new_server(self) -> McpServer:
        return McpServer(self.args["server"], self.args["tools"], self.args["secrets"])


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
        messages = list[Plain]()
        for call_id, name, arguments in calls:
            result = await self._result(name, arguments)
            self._counts["tool_errors"] += result.failed
            message = {"role": "tool", "tool_call_id": call_id, "name": name}
            messages.append({**message, "content": result.content})
        messages += unread
        self._counts["parse_errors"] += len(unread)
        return Observation(readable(messages), None, False, self._metrics(), tuple(messages))

    async def close(self) -> None:
        try:
            await self.episode.close()
        finally:
            if not self.shared:
                await self.server.close()

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
