"""Environments of a real OpenEnv server on this machine.

Its package goes with few others: ``RLC_OPENENV_PYTHON`` names a Python that has it, if this one has
not.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from plan_recipes import recipe
from run_support import compiled, metrics, run

from rlc.catalog.builtins.sources import AS_THEY_COME, UNDECIDED
from rlc.chat.turns import Action, ContractError, EnvError, Observation
from rlc.compile.variants import rehearse
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.openenv import OpenEnvSource, openenv_problem, schema_of
from rlc.plan.environments import EnvPlan
from rlc.runtime.start import open_run

PYTHON = sys.executable if find_spec("openenv") else os.environ.get("RLC_OPENENV_PYTHON")
pytestmark = [pytest.mark.engine, pytest.mark.server, pytest.mark.slow]
needs_server = pytest.mark.skipif(PYTHON is None, reason="no Python with openenv is named")

ARGS: dict[str, Any] = {"text": None, "encode": None, "show": "text", "reset": {}, "sessions": 2}


@contextmanager
def serving(*words: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(ROOT / "tests" / "support" / "openenv_server.py")
    assert PYTHON is not None
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    server = subprocess.Popen([PYTHON, program, str(port), *words], env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                schema_of(url)
                break
            except EnvError:
                assert server.poll() is None
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as address:
        yield address


def says(text: str) -> Action:
    return Action(text, {"role": "assistant", "content": text})


def acts(*made: str | tuple[str, str]) -> Action:
    """A reply with calls: of a tool by its name, or of `act`, with arguments."""
    from tinker_cookbook.renderers.base import ToolCall

    named = [("act", one) if isinstance(one, str) else one for one in made]
    calls = [
        ToolCall(function=ToolCall.FunctionBody(name=name, arguments=given))
        for name, given in named
    ]
    return Action("…", {"role": "assistant", "content": "", "tool_calls": calls})


def playing(
    url: str, play: Callable[..., Awaitable[Any]], members: int = 1, seed: int = 5, **args: Any
) -> Any:
    async def run() -> Any:
        source = OpenEnvSource(url, {**ARGS, **args})
        episodes = await source.open(TaskKey(0, 0, seed, members), range(members))
        try:
            return await play(*episodes)
        finally:
            for episode in episodes:
                await episode.close()
                await episode.close()
            await source.close()

    return asyncio.run(run())


def one(url: str, *actions: Action, **args: Any) -> list[Observation]:
    async def play(episode: AsyncEpisode) -> list[Observation]:
        return [episode.first, *[await episode.play(action) for action in actions]]

    seen: list[Observation] = playing(url, play, **args)
    return seen


def number_of(first: Observation) -> str:
    return first.text.rpartition("(")[2].rstrip(")")


@needs_server
def test_the_text_of_a_reply_is_a_field_of_the_action(url: str) -> None:
    first, wrong = one(url, says("no idea"), text="message")
    assert first.text.startswith("A number from 0 to 9.")
    assert (wrong.text, wrong.reward, wrong.done) == ("No", -0.1, False)
    *_, right = one(url, says("x"), says(number_of(first)), text="message")
    assert (right.text, right.reward, right.done, right.truncated) == ("Right.", 1.0, True, False)


@needs_server
def test_a_tool_has_the_schema_of_the_actions(url: str) -> None:
    first, seen = one(url, acts('{"message": "x", "loud": true}', '{"message": "y"}'))
    (tool,) = first.messages[0]["tools"]
    assert tool["name"] == "act"
    assert {"message", "loud"} <= set(tool["parameters"]["properties"])
    assert [each["content"] for each in seen.messages] == ["No!", "No"]
    assert seen.reward == pytest.approx(-0.2)


@needs_server
def test_an_environment_of_mcp_shows_its_own_tools() -> None:
    with serving("tools") as url:
        used = [("add", '{"a": 2, "b": 3}'), ("subtract", "{}"), ("add", '{"a": "x"}')]
        first, seen, last = one(url, acts(*used), acts(("answer", '{"value": 99}')), show=None)
    tools = {tool["name"]: tool for tool in first.messages[0]["tools"]}
    assert list(tools) == ["add", "answer"]
    assert tools["add"]["description"] == "Add two numbers."
    assert tools["add"]["parameters"]["required"] == ["a", "b"]
    assert [(each["name"], each["content"][:6]) for each in seen.messages] == [
        ("add", "5"),
        ("subtract", "Error:"),
        ("add", "Error:"),
    ]
    assert seen.metrics == {"refused": 2.0}
    assert (last.text, last.reward, last.done) == ("No.", 1.0, True)


@needs_server
@pytest.mark.parametrize("wrong", ['{"word": "x"}', "[1]", "{x}"])
def test_the_model_is_told_of_an_action_that_is_none_and_goes_on(url: str, wrong: str) -> None:
    _, refused, seen = one(url, acts(wrong), acts('{"message": "x"}'))
    assert refused.text.startswith("Error: ")
    assert (refused.reward, refused.done, refused.metrics) == (None, False, {"refused": 1.0})
    assert seen.text == "No"


@needs_server
def test_a_reply_without_an_action_ends_the_episode_cut_off(url: str) -> None:
    _, end = one(url, says("I give up."))
    assert (end.done, end.truncated, end.reward) == (True, True, None)


@needs_server
def test_a_function_of_ones_own_makes_the_action(url: str, tmp_path: Path) -> None:
    code = tmp_path / "own_actions.py"
    code.write_text(
        "def action(reply):\n    return {'message': reply, 'loud': True}\n\n"
        "def nothing(reply):\n    return reply\n",
        encoding="utf-8",
    )
    assert one(url, says("x"), encode=f"{code}:action")[1].text == "No!"
    with pytest.raises(EnvError, match="gave a str, not the record of an action"):
        one(url, says("x"), encode=f"{code}:nothing")


@needs_server
def test_members_begin_alike_and_take_turns_for_sessions(url: str) -> None:
    async def play(*episodes: AsyncEpisode) -> list[float | None]:
        answer = number_of(episodes[0].first)

        async def to_the_end(episode: AsyncEpisode) -> float | None:
            seen = await episode.play(says(answer))
            await episode.close()
            return seen.reward

        return list(await asyncio.gather(*map(to_the_end, episodes)))

    rewards = playing(url, play, members=5, text="message", sessions=1)
    assert rewards == [1.0] * 5


@needs_server
def test_arguments_of_the_reset_and_the_whole_observation(url: str) -> None:
    (first,) = one(url, reset={"top": 0}, show=None)
    assert '"text": "A number from 0 to 0. Which? (0)"' in first.text
    with pytest.raises(ContractError, match=r"has no `board`; it has .*`text`, `tries`"):
        one(url, show="board")


@needs_server
def test_an_environment_that_fails_and_one_without_room(url: str) -> None:
    with pytest.raises(EnvError, match="the table fell over"):
        one(url, says("crash"), text="message")

    async def play(*episodes: AsyncEpisode) -> None:
        await asyncio.gather(*(episode.play(says("x")) for episode in episodes))

    with pytest.raises(EnvError, match="`sessions = …` in the recipe is how many it has"):
        playing(url, play, members=4, text="message", sessions=4)


@needs_server
def test_what_ignores_the_seed_makes_no_group() -> None:
    async def play(_: AsyncEpisode, other: AsyncEpisode) -> None:
        await other.play(says("x"))

    with (
        serving("restless") as restless,
        pytest.raises(ContractError, match="begins differently with the same seed"),
    ):
        playing(restless, play, members=2, text="message")


def plan(url: str, **args: Any) -> EnvPlan:
    given = {**ARGS, **args}
    return EnvPlan("guess", 1.0, "openenv", url, given, (), None, UNDECIDED, AS_THEY_COME)


@needs_server
def test_a_field_that_is_not_there_is_found_before_a_run(url: str) -> None:
    openenv_problem(plan(url, text="message"))
    with pytest.raises(EnvError, match="has no field `word`; there is"):
        openenv_problem(plan(url, text="word"))


def test_a_server_that_does_not_answer() -> None:
    with pytest.raises(EnvError, match=r"gives no schema of its actions: .*refused"):
        openenv_problem(plan("http://127.0.0.1:9"))
    with pytest.raises(EnvError, match="does not answer"):
        one("http://127.0.0.1:9", text="message")


@needs_server
def test_the_recipe_of_the_project_rehearses(url: str, tmp_path: Path) -> None:
    text = recipe("openenv").replace("http://127.0.0.1:8000", url).replace("16)", "2)")
    run(open_run(rehearse(compiled(text)), tmp_path / "run"))
    assert metrics(tmp_path / "run")[-1]["turns/guess"] > 1
