"""Harbor's tasks as a source: ``harbor("tasks/*")``.

The policy has one tool, `bash`. A reply without a call ends the task, and so does the last of its
turns, or the end of the agent's time; then the task's tests run, and what they write is the
reward. Harbor counts an agent's whole time; here its commands count, not the sampling.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import define, field, frozen

from rlc.chat import Action, EnvError, Observation, calls_of, conversation, readable, unread_calls
from rlc.data import (
    CONTAINERS,
    NOTHING,
    SOLUTION,
    HarborTask,
    ListedProblems,
    TaskFacts,
    harbor_tasks,
    is_command,
)
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.deadlines import place
from rlc.envs.guarded import guard, guarded_folder
from rlc.plan import SOLVED, EnvPlan

_MOST = 1 << 20  # bytes of a command's output that are read
_GRACE = 5.0


@frozen
class Outcome:
    """The output and the exit status of a command; None as a status: it took too long."""

    output: str
    status: int | None


async def _execute(
    command: Sequence[str],
    seconds: float,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program in a process group of its own, which is killed when time is over, when this is
    cancelled, and when this process is killed."""
    with tempfile.TemporaryFile() as output, guard() as guarded:
        process = await asyncio.create_subprocess_exec(
            *guarded.command(*command),
            stdin=guarded.pipe,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        status: int | None = None
        try:
            with suppress(TimeoutError):
                status = await asyncio.wait_for(process.wait(), seconds)
        finally:
            with suppress(ProcessLookupError):  # the group may outlive its leader
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        output.seek(0)
        return Outcome(output.read(_MOST).decode(errors="replace"), status)


@define(eq=False)
class ContainerBox:
    """A container of docker or podman, by its command line: the machine of one episode."""

    program: str
    task: HarborTask
    _name: str | None = field(default=None, init=False)
    _guarded: ExitStack = field(factory=ExitStack, init=False)

    async def open(self) -> None:
        task, limits = self.task, list[str]()
        if task.cpus is not None:
            limits += ["--cpus", f"{task.cpus:g}"]
        if task.memory_mb is not None:
            limits += ["--memory", f"{task.memory_mb}m"]
        if not task.network:
            limits += ["--network", "none"]
        for name, value in task.env.items():
            limits += ["--env", f"{name}={value}"]
        if task.workdir is not None:
            limits += ["--workdir", task.workdir]
        image = task.image or await self._image()
        self._name = name = f"rlc-{uuid4().hex}"
        guarded = self._guarded.enter_context(guard())
        guarded.hold("sh", "-c", _REMOVE, self.program, name)  # before there is anything to remove
        start = ["run", "--detach", "--init", "--name", name, *limits, image]
        await self._do(task.build, *start, "sh", "-c", "sleep infinity")
        await self._do(_GRACE * 6, "exec", name, "mkdir", "-p", "/logs/verifier", "/logs/agent")

    async def run(self, command: str, seconds: float, env: Mapping[str, str] = {}) -> Outcome:
        given = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
        inside = ["timeout", "--kill-after=1", f"{seconds:g}", "bash", "-c", command]
        words = [self.program, "exec", *given, self._running(), *inside]
        outcome = await _execute(words, seconds + _GRACE)
        return Outcome(outcome.output, None) if outcome.status in (124, 137) else outcome

    async def put(self, folder: Path, where: str) -> None:
        await self._do(_GRACE * 12, "cp", f"{folder}/.", f"{self._running()}:{where}")

    async def read(self, path: str) -> str | None:
        """Return the text of a file within; None if there is none."""
        outcome = await _execute([self.program, "exec", self._running(), "cat", path], _GRACE * 6)
        return outcome.output if outcome.status == 0 else None

    async def close(self) -> None:
        """Remove it, with all that still runs there. Safe to call twice."""
        held, self._name = self._name, None
        with self._guarded:
            if held is not None:
                await _execute([self.program, "rm", "--force", held], _GRACE * 6)

    def _running(self) -> str:
        if self._name is None:
            raise EnvError(f"the container of `{self.task.name}` is not running")
        return self._name

    async def _image(self) -> str:
        """Return the image of the Dockerfile, which the runtime keeps once it is built."""
        folder, digest = self.task.folder / "environment", blake2b(digest_size=8)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
        name = f"rlc-harbor:{digest.hexdigest()}"
        await self._do(self.task.build, "build", "--quiet", "--tag", name, str(folder))
        return name

    async def _do(self, seconds: float, *words: str) -> None:
        outcome = await _execute([self.program, *words], seconds)
        if outcome.status != 0:
            why = (outcome.output.strip().splitlines() or ["it took too long"])[-1]
            raise EnvError(f"`{self.program} {words[0]}` of `{self.task.name}` failed: {why}")


# More than once: a container may still be made when the process that asked for it is killed.
_REMOVE = 'for wait in 0 1 4; do sleep $wait; "$0" rm --force "$1"; done'


TRIED_TASKS = 2  # with their solutions, by an audit
_SOLUTION = "solution/solve.sh"
_ROOTS = ("app", "logs", "solution", "tests", "workdir")
_ABSOLUTE = re.compile(rf"(?<![\w./-])/({'|'.join(_ROOTS)})(?![\w-])")


@define(eq=False)
class SubprocessBox:
    """A stand-in: commands run as rlc's own user, in a temporary folder, not isolated. /app, /logs,
    /solution, /tests and /workdir are folders within it, wherever commands and copied scripts name
    them. Of the Dockerfile, WORKDIR and plain COPY lines count."""

    task: HarborTask
    _root: Path | None = field(default=None, init=False)
    _at: str = field(default="app", init=False)
    _guarded: ExitStack = field(factory=ExitStack, init=False)

    async def open(self) -> None:
        root, _ = self._guarded.enter_context(guarded_folder("rlc-harbor-"))
        self._root = root
        for name in (*_ROOTS, "logs/verifier", "logs/agent"):
            (root / name).mkdir(exist_ok=True)
        dockerfile = self.task.folder / "environment" / "Dockerfile"
        text = dockerfile.read_text(encoding="utf-8") if dockerfile.is_file() else ""
        for line in text.splitlines():
            match line.split():
                case ["WORKDIR", where]:
                    self._at = where.strip("/")
                case ["COPY", source, where] if not source.startswith("--"):
                    there = where if where.startswith("/") else f"/{self._at}/{where}"
                    self._copy(dockerfile.parent / source, root / there.lstrip("/"), where[-1:])
        if self.task.workdir is not None:
            self._at = self.task.workdir.strip("/")
        (root / self._at).mkdir(parents=True, exist_ok=True)

    async def run(self, command: str, seconds: float, env: Mapping[str, str] = {}) -> Outcome:
        root = self._open()
        known = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(root / self._at),
            "LANG": "C.UTF-8",
        }
        given = {**known, **self.task.env, **env}
        words, cwd = ["bash", "-c", self._inside(command)], str(root / self._at)
        outcome = await _execute(words, seconds, cwd=cwd, env=given)
        return Outcome(outcome.output.replace(str(root), ""), outcome.status)

    async def put(self, folder: Path, where: str) -> None:
        there = self._open() / where.lstrip("/")
        self._copy(folder, there, "/")
        for path in there.rglob("*"):
            if path.is_file():
                with suppress(UnicodeDecodeError):
                    path.write_text(self._inside(path.read_text("utf-8")), encoding="utf-8")

    async def read(self, path: str) -> str | None:
        file = self._open() / path.lstrip("/")
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None

    async def close(self) -> None:
        self._root = None
        self._guarded.close()

    def _open(self) -> Path:
        if self._root is None:
            raise EnvError(f"the folder of `{self.task.name}` is gone")
        return self._root

    def _inside(self, text: str) -> str:
        return _ABSOLUTE.sub(rf"{self._open()}/\1", text)

    def _copy(self, source: Path, there: Path, end: str) -> None:
        if source.is_dir():
            shutil.copytree(source, there, dirs_exist_ok=True)
        elif source.is_file():
            inside = there / source.name if end in ("/", ".") or there.is_dir() else there
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, inside)


Box = ContainerBox | SubprocessBox


def new_box(runtime: str, task: HarborTask) -> Box:
    """Return a box of a runtime (``container``: docker or podman). Raise EnvError without one."""
    if runtime == "subprocess":
        return SubprocessBox(task)
    return ContainerBox(container_program(runtime), task)


def container_program(runtime: str) -> str:
    """Return the first container runtime that answers. Blocks. Raise EnvError if none does."""
    wanted = CONTAINERS.get(runtime, (runtime,))
    problems = dict[str, str]()
    for program in filter(is_command, wanted):
        if (problem := _problem_of(program)) is None:
            return program
        problems[program] = problem
    why = ", and ".join(f"{program} {problem}" for program, problem in problems.items())
    why = why or f"{' or '.join(wanted)} is not on this machine"
    raise EnvError(f"tasks of Harbor run in containers, and {why}")


def container_problem(runtime: str) -> str | None:
    """Why containers cannot be started here; None if they can. Blocks."""
    _problem_of.cache_clear()
    try:
        container_program(runtime)
    except EnvError as error:
        return str(error)
    return None


@cache
def _problem_of(program: str) -> str | None:
    try:
        ended = subprocess.run(
            [program, "info"], capture_output=True, text=True, timeout=_GRACE * 4
        )
    except subprocess.TimeoutExpired:
        return "does not answer"
    if ended.returncode == 0:
        return None
    why = ((ended.stderr or ended.stdout).strip().splitlines() or ["it does not say why"])[-1]
    return f"starts none: {why}"


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
    """An :class:`rlc.envs.base.AsyncSource` of ``count`` tasks; ``args`` as of the recipe. A box is
    opened with an episode's first command, at most ``boxes`` at a time."""

    def __init__(self, pattern: str, args: Mapping[str, Any]) -> None:
        """Raise EnvError or DataError if there are no such tasks, or nothing to run them in."""
        self._args = args
        tasks, samples = harbor_tasks(pattern), args["samples"]
        if (samples or 0) > len(tasks):
            there = f"{len(tasks):,} tasks, and {samples:,} are asked for"
            raise EnvError(f"`{pattern}` has {there}")
        self._tasks = ListedProblems(tasks, args["shuffle"]).first(samples)
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
        about = TaskFacts(str(self.task.folder), self.task.name)
        self.first = Observation(asked.text, None, messages=asked.messages, about=about)
        self._left = math.inf if self.task.agent is None else self.task.agent

    async def play(self, action: Action) -> Observation:
        if self._box is None:
            async with AsyncExitStack() as held:
                await held.enter_async_context(place(self.places))
                self._box = new_box(self.args["runtime"], self.task)
                held.push_async_callback(self._box.close)
                await self._box.open()
                self._held = held.pop_all()
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

    async def _result(self, name: str, arguments: str) -> str:
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
    if "reward" in rewards:
        return rewards["reward"]
    if len(rewards) == 1:
        return next(iter(rewards.values()))
    listed = ", ".join(rewards) or "none"
    raise EnvError(f"`{task.name}` gave several rewards ({listed}), and none is called `reward`")


async def solved_by(task: HarborTask, runtime: str, script: str | None) -> float:
    """Return the reward of a task after a script of its folder, such as ``solution/solve.sh``
    (None: after nothing): a sound task is solved by its solution alone."""
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


async def harbor_faults(env: EnvPlan) -> list[tuple[str, str]]:
    """Return what is wrong with the first tasks of an environment, each with what shows it: its
    ``SOLUTION``, or that ``NOTHING`` was done. Tasks without a solution are not tried with it."""
    faults, runtime = list[tuple[str, str]](), env.args["runtime"]
    for task in harbor_tasks(env.id)[:TRIED_TASKS]:
        if (task.folder / _SOLUTION).is_file():
            earned = await solved_by(task, runtime, _SOLUTION)
            if earned < SOLVED:
                said = f"the solution of `{task.name}` itself earns {earned:g}"
                faults.append((SOLUTION, said))
        earned = await solved_by(task, runtime, None)
        if earned >= SOLVED:
            faults.append((NOTHING, f"`{task.name}` earns {earned:g} when nothing was done"))
    return faults


def harbor_problems(envs: Sequence[EnvPlan]) -> list[str]:
    """What is wrong with the machine that tasks are to be played on."""
    runtimes = {
        env.args["runtime"]: env.name for env in envs if env.args["runtime"] != "subprocess"
    }
    found = ((name, container_problem(runtime)) for runtime, name in runtimes.items())
    return [f"`{name}`: {why}" for name, why in found if why is not None]
