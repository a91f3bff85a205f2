"""Tools of a real MCP server, called between the turns of an environment."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="mcp is not installed (rlc[mcp])")
from paths import ROOT

from rlc.chat.turns import Action, EnvError, Observation
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.mcp import McpServer, McpSource, server_problem

pytestmark = [pytest.mark.engine, pytest.mark.server, pytest.mark.slow]

SERVER = str(ROOT / "tests" / "support" / "mcp_server.py")
ARGS: dict[str, Any] = {
    "server": SERVER,
    "tools": [],
    "uses": 5,
    "timeout": 20,
    "per": "worker",
    "secrets": [],
}


class Echo:
    """One question; the reply is worth its length, and is remembered."""

    def __init__(self) -> None:
        self.first = Observation("What is 1 + 2?")
        self.heard = list[str]()
        self.closed = 0

    async def play(self, action: Action) -> Observation:
        self.heard.append(action.text)
        return Observation("", float(len(action.text)), done=True, metrics={"letters": 1.0})

    async def close(self) -> None:
        self.closed += 1


class Echoes:
    def __init__(self) -> None:
        self.made = list[Echo]()

    async def open(self, task: TaskKey, members: Any) -> list[AsyncEpisode]:
        episodes = [Echo() for _ in members]
        self.made += episodes
        return [*episodes]

    async def close(self) -> None: ...


def calls(*made: tuple[str, str]) -> Action:
    from tinker_cookbook.renderers.base import ToolCall

    tool_calls = [
        ToolCall(function=ToolCall.FunctionBody(name=name, arguments=arguments))
        for name, arguments in made
    ]
    return Action("<markup>", {"role": "assistant", "content": "Well.", "tool_calls": tool_calls})


def says(text: str) -> Action:
    return Action(f"<markup>{text}", {"role": "assistant", "content": text})


def playing(play: Callable[..., Awaitable[Any]], members: int = 1, **args: Any) -> Any:
    """What ``play`` gives with the episodes of a group, all of which are closed in the end."""

    async def run() -> Any:
        inner = Echoes()
        source = McpSource(inner, {**ARGS, **args})
        try:
            episodes = await source.open(TaskKey(0, 0, 0, members), range(members))
            try:
                return await play(*episodes)
            finally:
                for episode in episodes:
                    await episode.close()
        finally:
            await source.close()
            assert all(episode.closed for episode in inner.made)

    return asyncio.run(run())


def one(*actions: Action, **args: Any) -> list[Observation]:
    async def play(episode: AsyncEpisode) -> list[Observation]:
        return [episode.first, *[await episode.play(action) for action in actions]]

    seen: list[Observation] = playing(play, **args)
    return seen


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server at a port, for the tests that do not ask how theirs is started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, SERVER, str(port)])
    try:
        asyncio.run(_until_up(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        server.wait()


async def _until_up(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.1)


def test_calls_are_made_and_the_environment_sees_the_reply_alone() -> None:
    first, results, last = one(
        calls(("add", '{"a": 1, "b": 2}'), ("add", '{"a": 5, "b": 5}')), says("3"), uses=4
    )
    head, asked = first.messages
    assert [tool["name"] for tool in head["tools"]][:2] == ["add", "keep"]
    assert head["tools"][0]["parameters"]["required"] == ["a", "b"]
    assert asked == {"role": "user", "content": "What is 1 + 2?"}
    assert [each["content"] for each in results.messages] == ["3", "10"]
    assert (results.reward, results.done) == (None, False)
    assert (last.reward, last.done) == (1.0, True)
    assert last.metrics == {
        "letters": 1.0,
        "tool_calls": 2.0,
        "tool_errors": 0.0,
        "parse_errors": 0.0,
    }


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("fail", "{}"), "out of order"),
        (("add", '{"a": "x", "b": 1}'), "Error"),
        (("steal", "{}"), "Error: there is no tool 'steal'"),
        (("add", "{a}"), "Error: the arguments are not JSON"),
        (("add", "[1]"), "Error: the arguments are not a JSON object"),
    ],
)
def test_the_model_is_told_of_a_wrong_call_and_goes_on(
    call: tuple[str, str], told: str, address: str
) -> None:
    _, wrong, right = one(calls(call), calls(("add", '{"a": 1, "b": 2}')), server=address)
    assert told in wrong.text
    assert (right.text, right.metrics["tool_errors"]) == ("3", 1.0)


def test_a_call_that_takes_too_long_is_an_answer_of_its_own(address: str) -> None:
    add = calls(("add", '{"a": 1, "b": 1}'))
    _, late, _ = one(calls(("hang", "{}")), add, server=address, timeout=0.5)
    assert late.text == "Error: the call took longer than 500 ms"


def test_after_the_last_use_the_reply_goes_to_the_environment(address: str) -> None:
    add = ("add", '{"a": 1, "b": 1}')
    _, results, last = one(calls(add, add, add), calls(add), server=address, uses=2)
    assert [each["content"] for each in results.messages][2] == (
        "Error: no calls are left; answer now."
    )
    assert (last.done, last.reward) == (True, float(len("Well.")))


def test_a_server_is_shared_or_each_episode_has_its_own() -> None:
    keep = calls(("keep", '{"number": 1}'))

    async def play(*episodes: AsyncEpisode) -> list[str]:
        return [(await episode.play(keep)).text for episode in episodes]

    assert playing(play, members=2) == ["1", "2"]
    assert playing(play, members=2, per="episode") == ["1", "1"]


def test_only_the_tools_that_are_named_are_shown(address: str) -> None:
    first, wrong = one(calls(("keep", '{"number": 1}')), server=address, tools=["add"])
    assert [tool["name"] for tool in first.messages[0]["tools"]] == ["add"]
    assert "no tool 'keep'" in wrong.text


def test_a_server_that_dies_fails_the_rollout_and_is_started_again() -> None:
    async def run() -> str:
        source = McpSource(Echoes(), ARGS)
        try:
            (episode,) = await source.open(TaskKey(0, 0, 0, 1), [0])
            with pytest.raises(EnvError, match="the MCP server"):
                await episode.play(calls(("die", "{}")))
            (again,) = await source.open(TaskKey(0, 0, 0, 1), [0])
            return (await again.play(calls(("add", '{"a": 2, "b": 2}')))).text
        finally:
            await source.close()

    assert asyncio.run(run()) == "4"


def test_secrets_are_named_and_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TEST_SECRET", "sesame")
    assert one(calls(("secret", "{}")))[1].text == "nothing"
    assert one(calls(("secret", "{}")), secrets=["MCP_TEST_SECRET"])[1].text == "sesame"


def test_streamable_http(address: str) -> None:
    _, results, last = one(calls(("add", '{"a": 1, "b": 2}')), says("3"), server=address)
    assert (results.text, last.reward) == ("3", 1.0)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"tools": ["subtract"]}, "has no tool `subtract`; there is `add`"),
        ({"server": "no-such-command here"}, "cannot be started: there is no such command"),
        ({"server": f"{sys.executable} -c 'raise SystemExit(\"my bad\")'"}, "my bad"),
        ({"server": "http://127.0.0.1:9/mcp"}, "failed: "),
        ({"secrets": ["MCP_NOT_SET"]}, "needs MCP_NOT_SET in the environment"),
    ],
)
def test_what_is_wrong_with_a_server_is_found_before_a_run(args: dict[str, Any], why: str) -> None:
    assert why in str(server_problem("sums", {**ARGS, **args}))


def test_nothing_is_wrong_with_a_server_that_has_the_tools() -> None:
    assert server_problem("sums", ARGS) is None


def test_a_server_that_is_closed_leaves_no_process(tmp_path: Path) -> None:
    async def run() -> int:
        server = McpServer(SERVER)
        await server.start()
        await server.close()
        await server.close()
        return 0

    before = set(os.listdir("/proc"))
    asyncio.run(run())
    left = {pid for pid in set(os.listdir("/proc")) - before if pid.isdigit()}
    commands = [Path(f"/proc/{pid}/cmdline") for pid in left]
    assert not [path for path in commands if path.exists() and SERVER in path.read_text()]
