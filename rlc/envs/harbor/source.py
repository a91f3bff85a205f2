"""Harbor's tasks as a source: ``harbor("tasks/*")``.

The policy has one tool, `bash`. A reply without a call ends the task, and so does the last of its
turns, or the end of the agent's time; then the task's tests run, and what they write is the
reward. Harbor counts an agent's whole time; here its commands count, not the sampling.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from attrs import define, field

from rlc.chat.prompts import (
    calls_of,
    conversation,
    readable,
    unread_calls,
)
from rlc.chat.turns import Action, EnvError, Observation
from rlc.data.about import About
from rlc.data.harbor import HarborTask, harbor_tasks
from rlc.data.sets.problems import Listed
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.deadlines import place
from rlc.envs.harbor.boxes import Box, Outcome, container_problem, new_box
from rlc.plan.environments import EnvPlan

BASH = {
    "name": "bash",
    "description": "Run a command in a shell. Each starts anew in the working directory.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "the command"}},
        "required": ["command"],
    },
}
_SHOWN = 10_000  # characters of a command's output
_REWARDS = "/logs/verifier/reward.json", "/logs/verifier/reward.txt"


class HarborSource:
    """The tasks of some folders, ``count`` of them. See :class:`rlc.envs.base.AsyncSource`.

    ``args`` are those of the recipe. A box is opened with an episode's first command, at most
    ``boxes`` at a time.
    """

    def __init__(self, pattern: str, args: Mapping[str, Any]) -> None:
        """Raise EnvError or DataError if there are no such tasks, or nothing to run them in."""
        self._args = args
        tasks, samples = harbor_tasks(pattern), args["samples"]
        if (samples or 0) > len(tasks):
            there = f"{len(tasks):,} tasks, and {samples:,} are asked for"
            raise EnvError(f"`{pattern}` has {there}")
        self._tasks = Listed(tasks, args["shuffle"]).first(samples)
        self._places = asyncio.Semaphore(args["boxes"])
        self.count = self._tasks.count

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        chosen = self._tasks.row(task.order, task.number)
        return [HarborEpisode(chosen, self._args, self._places) for _ in members]

    async def close(self) -> None:
        """Nothing is held."""


@define(eq=False)
class HarborEpisode:
    """See :class:`rlc.envs.base.AsyncEpisode`."""

    task: HarborTask
    args: Mapping[str, Any]
    places: asyncio.Semaphore
    first: Observation = field(init=False)
    _box: Box | None = field(default=None, init=False)
    _held: AsyncExitStack = field(factory=AsyncExitStack, init=False)  # the box and its place
    _left: float = field(init=False)  # of the agent's seconds
    _turns: int = field(default=0, init=False)
    _commands: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        asked = conversation([{"role": "user", "content": self.task.instruction}], [BASH])
        about = About(str(self.task.folder), self.task.name)
        self.first = Observation(asked.text, None, messages=asked.messages, about=about)
        self._left = math.inf if self.task.agent is None else self.task.agent

    async def play(self, action: Action) -> Observation:
        """Run the commands of a reply, or the tests."""
        if self._box is None:
            await self._open()
        reply: Mapping[str, Any] = action.message or {"content": action.text}
        self._turns += 1
        messages = [
            {"role": "tool", "tool_call_id": call_id, "name": name, "content": result}
            for call_id, name, arguments in calls_of(reply)
            for result in [await self._result(name, arguments)]
        ]
        messages += unread_calls(reply)
        metrics = {"commands": float(self._commands)}
        cut_off = self._turns >= self.args["turns"] or self._left <= 0
        if messages and not cut_off:
            return Observation(readable(messages), None, metrics=metrics, messages=tuple(messages))
        rewards, said = await self._verified()
        reward, metrics = _reward(self.task, rewards), {**metrics, **rewards}
        truncated = bool(messages)
        return Observation(said, reward, True, metrics, tuple(messages), truncated)

    async def close(self) -> None:
        await self._held.aclose()

    async def _open(self) -> None:
        async with AsyncExitStack() as held:
            await held.enter_async_context(place(self.places))
            self._box = new_box(self.args["runtime"], self.task)
            held.push_async_callback(self._box.close)
            await self._box.open()
            self._held = held.pop_all()

    async def _result(self, name: str, arguments: str) -> str:
        """What the policy sees of a call."""
        assert self._box is not None
        if name != BASH["name"]:
            return f"Error: there is no tool {name!r}"
        try:
            command = json.loads(arguments)["command"]
        except (ValueError, TypeError, KeyError):
            command = None
        if not isinstance(command, str):
            return 'Error: the arguments are not of the form {"command": "…"}'
        self._commands += 1
        seconds = min(self.args["timeout"], max(self._left, 0.0))
        if not seconds:
            return "Error: the time is over"
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome = await self._box.run(command, seconds)
        self._left -= loop.time() - started
        return _shown(outcome, seconds)

    async def _verified(self) -> tuple[dict[str, float], str]:
        """Run the tests; return the rewards that they wrote, by name, and the end of what they
        printed. Raise EnvError if they wrote none."""
        assert self._box is not None
        box, task = self._box, self.task
        await box.put(task.folder / "tests", "/tests")
        await box.run(f"rm -f {' '.join(_REWARDS)}", 60.0)
        test = "chmod +x /tests/test.sh && /tests/test.sh"
        outcome = await box.run(test, task.verifier, task.verifier_env)
        if outcome.status is None:
            raise EnvError(f"the tests of `{task.name}` took longer than {task.verifier:g} s")
        for path in _REWARDS:
            if (text := await box.read(path)) is not None:
                return _rewards(task, path, text), outcome.output[-_SHOWN:]
        last = (outcome.output.strip().splitlines() or ["nothing"])[-1]
        raise EnvError(f"the tests of `{task.name}` wrote no reward; they printed last: {last}")


def _shown(outcome: Outcome, seconds: float) -> str:
    text = outcome.output
    if len(text) > _SHOWN:
        left = len(text) - _SHOWN
        text = f"{text[: _SHOWN // 2]}\n… {left:,} characters …\n{text[-_SHOWN // 2 :]}"
    if outcome.status is None:
        return f"{text}\n[ended after {seconds:g} s]"
    return text if outcome.status == 0 else f"{text}\n[exit status {outcome.status}]"


def _rewards(task: HarborTask, path: str, text: str) -> dict[str, float]:
    try:
        given = json.loads(text) if path.endswith(".json") else float(text)
    except ValueError as error:
        raise EnvError(f"{path} of `{task.name}` holds no reward: {text[:60]!r}") from error
    named = given if isinstance(given, dict) else {"reward": given}
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise EnvError(f"{path} of `{task.name}` gives {value!r} as {name!r}, not a number")
    return {str(name): float(value) for name, value in named.items()}


def _reward(task: HarborTask, rewards: Mapping[str, float]) -> float:
    """The one called `reward`, or the only one."""
    if "reward" in rewards:
        return rewards["reward"]
    if len(rewards) == 1:
        return next(iter(rewards.values()))
    listed = ", ".join(rewards) or "none"
    raise EnvError(f"`{task.name}` gave several rewards ({listed}), and none is called `reward`")


async def solved_by(task: HarborTask, runtime: str, script: str | None) -> float:
    """The reward of a task after a script of its folder, such as ``solution/solve.sh``, or, None,
    after nothing was done: a task is sound if its solution solves it, and nothing does not."""
    box = new_box(runtime, task)
    try:
        await box.open()
        if script is not None:
            await box.put(task.folder / "solution", "/solution")
            await box.run(f"bash /{script}", task.agent or 600.0)
        episode = HarborEpisode(task, {"turns": 1}, asyncio.Semaphore(1))
        episode._box = box
        return _reward(task, (await episode._verified())[0])
    finally:
        await box.close()


def harbor_problems(envs: Sequence[EnvPlan]) -> list[str]:
    """What is wrong with the machine that tasks are to be played on."""
    runtimes = {
        env.args["runtime"]: env.name for env in envs if env.args["runtime"] != "subprocess"
    }
    found = ((name, container_problem(runtime)) for runtime, name in runtimes.items())
    return [f"`{name}`: {why}" for name, why in found if why is not None]
