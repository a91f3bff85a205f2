"""The programs that agents are: a Python function, called in a thread or in a loop of its own, or a
command, run as a process."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from rlc.chat import EnvError
from rlc.data import load_attribute
from rlc.envs.guarded import Guard, guarded_folder
from rlc.envs.workers.event_loop_thread import EventLoopThread
from rlc.envs.workers.threads import ThreadWorkers
from rlc.plan import AgentPlan

_SHOWN = 4_000  # bytes of what a command has written that are kept with its failure
_SERVED_WITH = ("starlette", "uvicorn")
_KEPT_BACK = ("TINKER_API_KEY",)  # what agents have no use for


class AgentError(EnvError):
    """An agent that failed; the text is one sentence."""

    cause = "program"


@frozen
class AgentRun:
    """What an agent is called with: where it asks the model, and its task.

    ``base_url`` and ``api_key`` are those of an OpenAI client, and of this episode alone;
    ``anthropic_url`` is the base URL of an Anthropic client. ``task`` has the fields of the row,
    ``messages`` the prompt that it makes as a chat.
    """

    base_url: str
    api_key: str
    model: str
    task: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    anthropic_url: str = ""


def agent_problem(plan: AgentPlan) -> str | None:
    """What keeps an agent from being run on this machine; None if nothing does."""
    if missing := [package for package in _SERVED_WITH if find_spec(package) is None]:
        packages = " and ".join(missing)
        return f"agents are served with {packages}, not installed here: pip install 'rlc[serve]'"
    if plan.command is None:
        return None
    program = plan.command[0]
    found = shutil.which(os.path.join(plan.folder, program) if os.sep in program else program)
    return None if found else f"the agent cannot be run: there is no command `{program}`"


@define(eq=False)
class FunctionAgent:
    """A function of the user's own. One that hangs is abandoned with its thread."""

    target: str
    args: Mapping[str, Any]
    threads: ThreadWorkers
    _function: Any = field(init=False)
    _loop: EventLoopThread = field(factory=EventLoopThread, init=False)

    def __attrs_post_init__(self) -> None:
        self._function = load_attribute(self.target)

    @property
    def name(self) -> str:
        return f"`{self.target}`"

    async def run(self, run: AgentRun) -> Any:
        """Return what it returns, or raise what it raises. It is stopped if this is cancelled."""
        if inspect.iscoroutinefunction(self._function):
            return await self._loop.call(self._awaited(run))
        return await self.threads.call(self._called, run)

    def close(self) -> None:
        self._loop.close()

    def _called(self, run: AgentRun) -> Any:
        return self._function(run, **self.args)

    async def _awaited(self, run: AgentRun) -> Any:
        try:
            return await self._function(run, **self.args)
        except SystemExit as error:  # it would end the loop
            raise AgentError(f"{self.name} raised SystemExit") from error


@define(eq=False)
class CommandAgent:
    """A command. It finds its address in the variables that clients of OpenAI and Anthropic read,
    its task in the file ``RLC_TASK``, and may write its result to the file ``RLC_RESULT``."""

    command: Sequence[str]
    folder: str
    by_status: bool  # its exit status is its reward
    _starting: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    @property
    def name(self) -> str:
        return f"`{' '.join(self.command)}`"

    async def run(self, run: AgentRun) -> Any:
        """Return what it writes, as JSON if it is any, or its exit status as a reward. It is killed
        if this is cancelled."""
        with ExitStack() as held:
            # A start blocks the event loop, which goes on between one and the next.
            async with self._starting:
                folder, guarded = held.enter_context(guarded_folder("rlc-agent-"))
                task, result, log = (folder / name for name in ("task.json", "result", "log"))
                given = {"task": run.task, "messages": run.messages}
                task.write_text(json.dumps(given, default=str), encoding="utf-8")
                written = held.enter_context(log.open("wb"))
                process = await self._started(self._variables(run, task, result), written.fileno())
            status = await _ended(process, guarded)
            said = log.read_bytes()[-_SHOWN:].decode(errors="replace").strip()
            if self.by_status and status in (0, 1):
                return 1.0 - status
            if status:
                raise self._failed(status, said)
            if not result.is_file():
                return None
            text = result.read_text(encoding="utf-8", errors="replace")
            try:
                return json.loads(text)
            except ValueError:
                return text.strip()

    def close(self) -> None:
        """Nothing is shared."""

    async def _started(self, variables: Mapping[str, str], log: int) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self.command,
                cwd=self.folder,
                env=variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise AgentError(f"{self.name} cannot be started: {error.strerror}") from error

    def _variables(self, run: AgentRun, task: Path, result: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _KEPT_BACK}
        own = {
            "OPENAI_BASE_URL": run.base_url,
            "OPENAI_API_KEY": run.api_key,
            "OPENAI_MODEL": run.model,
            "ANTHROPIC_BASE_URL": run.anthropic_url,
            "ANTHROPIC_API_KEY": run.api_key,
            "RLC_TASK": str(task),
            "RLC_RESULT": str(result),
        }
        return kept | own

    def _failed(self, status: int, said: str) -> AgentError:
        if status < 0:
            ended = f"was killed by {signal.Signals(-status).name}"
        else:
            ended = f"ended with the exit status {status}"
        error = AgentError(f"{self.name} {ended}" + (f": {said.splitlines()[-1]}" if said else ""))
        if said:
            error.add_note(f"what it wrote:\n{said}")
        return error


Program = FunctionAgent | CommandAgent  # what is run once for each episode


def make_program(plan: AgentPlan) -> Program:
    """Return the program of an agent. Raise DataError if it is not found."""
    if plan.program is not None:
        return FunctionAgent(plan.program, plan.args, ThreadWorkers(plan.concurrency))
    assert plan.command is not None
    return CommandAgent(plan.command, plan.folder, plan.reward == "exit_status")


async def _ended(process: asyncio.subprocess.Process, guarded: Guard) -> int:
    """The exit status of a process, which is killed with all that it has started."""
    try:
        guarded.hold_group(process.pid)
        return await process.wait()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            await asyncio.shield(process.wait())
