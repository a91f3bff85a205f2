"""An OpenEnv server as a source: ``openenv("http://…")``, or one that is started here.

How a reply becomes an action, which is a record of the environment's own:

    text = "message"         its text is that field
    encode = "f.py:action"   a function makes the record of the text
    neither                  the model calls the tool `act`, with the action as arguments, or the
                             tools of the environment, if its actions are calls of tools

What is observed is a record, too: the model sees the field ``show``, or all of it as JSON, and of a
call of a tool what it came to.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from signal import SIGKILL
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from attrs import define, field

from rlc.chat import (
    Action,
    ContractError,
    EnvError,
    Observation,
    calls_of,
    conversation,
    readable,
    text_of,
    unread_calls,
)
from rlc.data import DataError, explained, is_command, load_attribute, server_command
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.deadlines import place
from rlc.envs.guarded import guard, variables
from rlc.envs.mcp import content_of
from rlc.errors import first_line
from rlc.plan import EnvPlan, elapsed

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

    async def tools(self) -> list[Plain]:
        """Return the tools that the environment offers by MCP, which takes no step of it; none if
        it does not know them."""
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        answer = await self._answered("mcp", ask)
        listed = (answer.get("data", {}).get("result") or {}).get("tools", ())
        return [
            {
                "name": tool["name"],
                "description": tool.get("description") or "",
                "parameters": tool.get("inputSchema") or tool.get("input_schema") or {},
            }
            for tool in listed
        ]

    async def close(self) -> None:
        """End the session. Safe to call twice."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _answered(self, kind: str, data: Plain) -> Plain:
        """Return the answer to a message. If this is cancelled, the session is unusable: the answer
        would be taken for the next one's."""
        from websockets.exceptions import ConnectionClosed

        if self._socket is None:
            raise EnvError(f"the session of {self.url} is closed")
        try:
            with suppress(ConnectionClosed):  # what it has said before it closed is read
                await self._socket.send(json.dumps({"type": kind, "data": data}))
            answer: Plain = json.loads(await self._socket.recv())
            return answer
        except ConnectionClosed as error:
            raise EnvError(f"the OpenEnv server {self.url} ended the session: {error}") from error

    async def _asked(self, kind: str, data: Plain) -> Plain:
        """Return what is observed, as the answer to a message."""
        answer = await self._answered(kind, data)
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
    """Return the JSON schema of a server's actions. Blocks. Raise EnvError if it gives none."""
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


_STARTING = 120.0  # seconds within which a server must answer: it may be installed first
_PORT = "{port}"
ACT = "act"  # the tool
_CALLS = ("Action", "CallToolAction", "ListToolsAction")  # actions that may be calls of tools


@contextmanager
def served(server: str, secrets: Sequence[str] | None = None) -> Iterator[str]:
    """Return the address of a server, which is started here for the block, with ``secrets`` of the
    environment, unless it is one. Raise EnvError if it cannot be started or does not answer."""
    command = _command(server)
    if command is None:
        yield server
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [word.replace(_PORT, str(port)) for word in command]
    env = {**variables(secrets), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if words[0] != sys.executable:  # another Python has packages of its own
        env.pop("PYTHONPATH")
    with tempfile.TemporaryFile() as log, guard() as guarded:
        process = subprocess.Popen(
            guarded.command(*words),
            env=env,
            stdin=guarded.pipe,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _await(server, url, process, log.fileno())
            yield url
        finally:
            with suppress(ProcessLookupError):  # the group may outlive its leader
                os.killpg(process.pid, SIGKILL)
            process.wait()


def _command(server: str) -> list[str] | None:
    if server.isidentifier():
        if importlib.util.find_spec(server) is None:
            raise EnvError(f"there is no package `{server}` here, nor beside the recipe")
        app = f"{server}.server.app"
        return [sys.executable, "-m", app, "--host", "127.0.0.1", "--port", _PORT]
    try:
        command = server_command(server)
    except DataError as error:
        raise EnvError(str(error)) from error
    if command is not None and not is_command(command[0]):
        raise EnvError(f"the server `{server}` cannot be started: there is no `{command[0]}` here")
    return command


def _await(server: str, url: str, process: subprocess.Popen[bytes], log: int) -> None:
    """Wait until a server answers. Raise EnvError if it ends before, or takes too long."""
    end = time.monotonic() + _STARTING
    while True:
        try:
            schema_of(url)
            return
        except EnvError:
            status, late = process.poll(), time.monotonic() > end
            if status is None and not late:
                time.sleep(0.1)
                continue
        written = os.pread(log, 1 << 20, 0).decode(errors="replace").strip().splitlines()
        why = f": {written[-1]}" if written else ""
        ended = "did not answer in " + elapsed(_STARTING) if status is None else "ended"
        raise EnvError(f"the OpenEnv server `{server}` {ended}{why}")


@define(eq=False)
class OpenEnvSource:
    """An :class:`rlc.envs.base.AsyncSource`. Every member has one of ``sessions``, begun with the
    same seed: the first when a group is opened, the others with their first moves."""

    server: str
    args: Mapping[str, Any]
    url: str = field(init=False)
    _serving: ExitStack = field(factory=ExitStack, init=False)
    _tools: list[Plain] = field(factory=list, init=False)
    _may_call: bool = field(default=False, init=False)
    calls: bool = field(default=False, init=False)  # its actions are calls of its own tools
    _encode: Callable[[str], Any] | None = field(default=None, init=False)
    _places: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Raise EnvError if the server does not answer, DataError if there is no such function."""
        self._places = asyncio.Semaphore(self.args["sessions"])
        with ExitStack() as serving:
            self.url = serving.enter_context(served(self.server, self.args.get("secrets")))
            if self.args["encode"] is not None:
                self._encode = load_attribute(self.args["encode"])
            elif self.args["text"] is None:
                schema, about = schema_of(self.url), "Take one action."
                self._may_call = schema.get("title") in _CALLS
                self._tools = [{"name": ACT, "description": about, "parameters": schema}]
            self._serving = serving.pop_all()

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        held, session, seen = await self._begun(task.seed)
        episodes = [OpenEnvEpisode(self, task.seed, seen) for _ in members]
        episodes[0].held, episodes[0].session = held, session
        return [*episodes]

    async def close(self) -> None:
        """A server that was started here ends."""
        self._serving.close()

    async def another(self, seed: int, first: Observation) -> tuple[AsyncExitStack, OpenEnvSession]:
        held, session, seen = await self._begun(seed)
        if seen.messages != first.messages:
            await held.aclose()
            raise ContractError(
                f"{self.url} begins differently with the same seed, so there is no group to "
                "compare: it has to draw from the `seed` of its reset"
            )
        return held, session

    async def _begun(self, seed: int) -> tuple[AsyncExitStack, OpenEnvSession, Observation]:
        async with AsyncExitStack() as held:
            await held.enter_async_context(place(self._places))
            session = OpenEnvSession(self.url)
            held.push_async_callback(session.close)
            given = await session.reset({"seed": seed % 2**31, **self.args["reset"]})
            own = await session.tools() if self._may_call else []
            self.calls = bool(own)
            asked = [{"role": "user", "content": self.shown(given)}]
            return held.pop_all(), session, conversation(asked, own or self._tools)

    def shown(self, given: Plain) -> Any:
        """Return an observation for the model. Raise ContractError if it lacks the field."""
        seen, name = given["observation"], self.args["show"]
        if self.calls and "tool_name" in seen:
            return _came_to(seen)
        if name is None:
            return json.dumps(seen, ensure_ascii=False)
        if name not in seen:
            there = ", ".join(f"`{one}`" for one in seen) or "nothing"
            raise ContractError(f"an observation of {self.url} has no `{name}`; it has {there}")
        value = seen[name]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def actions(self, reply: Mapping[str, Any]) -> list[tuple[str | None, str, Any]]:
        """Return the actions in a reply, each with the id and the tool of its call; an action is
        the arguments of a call as they were written. Raise EnvError if the function that makes one
        fails."""
        if self._encode is not None:
            try:
                made = self._encode(text_of(reply))
            except Exception as error:
                raise EnvError(f"`{self.args['encode']}` raised {explained(error)}") from error
            if not isinstance(made, dict):
                what = f"gave a {type(made).__name__}, not the record of an action"
                raise EnvError(f"`{self.args['encode']}` {what}")
            return [(None, ACT, made)]
        if self.args["text"] is not None:
            return [(None, ACT, {self.args["text"]: text_of(reply)})]
        return list(calls_of(reply))


def _came_to(seen: Mapping[str, Any]) -> Any:
    """Return what a call of a tool came to, for the model: text, or texts and images."""
    if (error := seen.get("error")) is not None:
        return f"Error: {error['message']}"
    result = seen.get("result")
    if isinstance(result, dict) and result.get("content"):
        return content_of(result["content"])
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


@define(eq=False)
class OpenEnvEpisode:
    """See :class:`rlc.envs.base.AsyncEpisode`."""

    source: OpenEnvSource
    seed: int
    first: Observation
    held: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    session: OpenEnvSession | None = field(default=None, init=False)
    _refused: int = field(default=0, init=False)

    async def play(self, action: Action) -> Observation:
        """Take the actions of a reply, up to the last. One without actions cuts the episode off."""
        if self.session is None:
            self.held, self.session = await self.source.another(self.seed, self.first)
        reply: Mapping[str, Any] = action.message or {"content": action.text}
        messages, rewards, done = list[Plain](), list[float](), False
        for call_id, tool, act in self.source.actions(reply):
            said, reward, done = await self._taken(tool, act)
            if reward is not None:
                rewards.append(reward)
            role = {"role": "user"} if call_id is None else {"role": "tool", "name": tool}
            answered = {} if call_id is None else {"tool_call_id": call_id}
            messages.append({**role, **answered, "content": said})
            if done:
                break
        unread = unread_calls(reply)
        self._refused += len(unread)
        messages += unread
        total, metrics = (sum(rewards) if rewards else None), {"refused": float(self._refused)}
        if not messages:
            return Observation("", total, True, metrics, truncated=True)
        return Observation(readable(messages), total, done, metrics, tuple(messages))

    async def close(self) -> None:
        await self.held.aclose()

    async def _taken(self, tool: str, act: Any) -> tuple[Any, float | None, bool]:
        """Return an action's observation, its reward, and whether it ends the episode."""
        assert self.session is not None
        try:
            if isinstance(act, str):
                act = json.loads(act)
            if not isinstance(act, dict):
                raise RefusedError("an action is an object")
            if self.source.calls:
                act = {"type": "call_tool", "tool_name": tool, "arguments": act}
            given = await self.session.step(act)
        except (RefusedError, ValueError) as error:
            self._refused += 1
            return f"Error: {error}", None, False
        self._refused += self.source.calls and given["observation"].get("error") is not None
        return self.source.shown(given), given.get("reward"), bool(given.get("done"))


def openenv_problem(env: EnvPlan) -> None:
    """Raise EnvError for a server that does not answer, or whose actions have no such field."""
    with served(env.id, env.args.get("secrets")) as url:
        known = schema_of(url).get("properties", {})
    text = env.args["text"]
    if text is not None and text not in known:
        listed = ", ".join(f"`{name}`" for name in known) or "none"
        raise EnvError(f"an action of {env.id} has no field `{text}`; there is {listed}")
