"""The environment ``agent()``: rows as tasks, each worked on by a program that owns its loop.

The program is a Python function, called in a thread or in a loop of its own, a workflow of rLLM, or
a command, run as a process. The runtime gives each run an endpoint of its own, where the model that
is trained answers. The episode ends with the program; its reward is what the program gives, or what
graders say of its answer and of the conversation.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.chat import ContractError, EnvError, Observation, text_of
from rlc.data import Messages, as_number, load_attribute
from rlc.envs.base import (
    AgentEndpoint,
    AsyncEpisode,
    PolicyClient,
    PolicyReply,
    PolicyRequest,
    RunningEpisode,
    TaskKey,
)
from rlc.envs.guarded import Guard, guarded_folder, variables
from rlc.envs.problems import ProblemEpisode, ProblemSource
from rlc.envs.workers.threads import EventLoopThread, ThreadWorkers
from rlc.envs.workflows import Workflow, is_workflow
from rlc.plan import AgentPlan, EnvPlan

_SHOWN = 4_000  # bytes of what a command has written that are kept with its failure
REWARD, ANSWER = "reward", "answer"  # names in what an agent gives


class AgentError(EnvError):
    """An agent that failed; the text is one sentence."""

    cause = "program"


@frozen
class AgentRun:
    """The argument of an agent: where it asks the model, and its task.

    ``base_url`` and ``api_key`` are those of an OpenAI client, and of this episode alone;
    ``anthropic_url`` is the base URL of an Anthropic client. ``task`` has the fields of the row,
    ``messages`` the prompt that it makes as a chat. A coroutine function can also await ``policy``,
    which answers without a client and with the sampled tokens. ``grade`` is what the graders of the
    environment say of a reply, if it has any.
    """

    base_url: str
    api_key: str
    model: str
    task: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    anthropic_url: str = ""
    policy: PolicyClient | None = None  # always given to a function
    grade: Callable[[str], float] | None = None


@frozen(eq=False)
class _PolicyElsewhere:
    """A policy that is asked from another loop than that in which it answers."""

    policy: PolicyClient
    loop: asyncio.AbstractEventLoop

    async def reply(self, request: PolicyRequest) -> PolicyReply:
        replying = asyncio.run_coroutine_threadsafe(self.policy.reply(request), self.loop)
        return await asyncio.wrap_future(replying)


def agent_problem(plan: AgentPlan) -> str | None:
    """Return why an agent cannot be run on this machine; None if it can."""
    if missing := [package for package in ("starlette", "uvicorn") if find_spec(package) is None]:
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
        found = load_attribute(self.target)
        is_class = is_workflow(found)
        self._function = Workflow(self.target, self.args, found) if is_class else found

    @property
    def name(self) -> str:
        return f"`{self.target}`"

    @property
    def workflow(self) -> Workflow | None:
        """The workflows of rLLM that it is a class of, if it is one."""
        return self._function if isinstance(self._function, Workflow) else None

    async def run(self, run: AgentRun) -> Any:
        """Return what it returns, or raise what it raises. It is stopped if this is cancelled."""
        if self.workflow is not None:
            return await self._loop.call(self.workflow.run(run))
        if inspect.iscoroutinefunction(self._function):
            return await self._loop.call(self._awaited(run))
        return await self.threads.call(partial(self._function, run, **self.args))

    def close(self) -> None:
        if self.workflow is not None:
            self.workflow.close()
        self._loop.close()

    async def _awaited(self, run: AgentRun) -> Any:
        try:
            return await self._function(run, **self.args)
        except SystemExit as error:  # it would end the loop
            raise AgentError(f"{self.name} raised SystemExit") from error


@define(eq=False)
class CommandAgent:
    """A command, with the variables of OpenAI's and Anthropic's clients, its task in the file
    ``RLC_TASK``, and perhaps a result in the file ``RLC_RESULT``."""

    command: Sequence[str]
    folder: str
    by_status: bool  # its exit status is its reward
    secrets: Sequence[str] | None = None  # variables of the environment that it is given
    _starting: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    @property
    def name(self) -> str:
        return f"`{' '.join(self.command)}`"

    @property
    def workflow(self) -> None:
        """It is no class."""

    async def run(self, run: AgentRun) -> Any:
        """Return its result, as JSON if it is any, or a reward. It is killed if cancelled."""
        with ExitStack() as held:
            # A start blocks the event loop, which goes on between one and the next.
            async with self._starting:
                folder, guarded = held.enter_context(guarded_folder("rlc-agent-"))
                task, result, log = (folder / name for name in ("task.json", "result", "log"))
                given = {"task": run.task, "messages": run.messages}
                task.write_text(json.dumps(given, default=str), encoding="utf-8")
                written = held.enter_context(log.open("wb"))
                own = self._variables(run, task, result)
                process = await self._started(guarded, own, written.fileno())
            status = await _ended(process)
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

    async def _started(
        self, guarded: Guard, given: Mapping[str, str], log: int
    ) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *guarded.command(*self.command),
                cwd=self.folder,
                env=given,
                stdin=guarded.pipe,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise AgentError(f"{self.name} cannot be started: {error.strerror}") from error

    def _variables(self, run: AgentRun, task: Path, result: Path) -> dict[str, str]:
        return variables(self.secrets) | {
            "OPENAI_BASE_URL": run.base_url,
            "OPENAI_API_KEY": run.api_key,
            "OPENAI_MODEL": run.model,
            "ANTHROPIC_BASE_URL": run.anthropic_url,
            "ANTHROPIC_API_KEY": run.api_key,
            "RLC_TASK": str(task),
            "RLC_RESULT": str(result),
        }

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


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the exit status of a process, which is killed with all that it has started."""
    try:
        return await process.wait()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            await asyncio.shield(process.wait())


class AgentSource:
    """See :class:`rlc.envs.base.AsyncSource`. Nothing runs before an episode is played."""

    def __init__(self, plan: EnvPlan, tasks: ProblemSource) -> None:
        """Raise DataError if the program is not found."""
        assert plan.agent is not None
        self.count = tasks.count
        self._tasks = tasks
        self._graded = bool(plan.graders or plan.judging)
        agent = plan.agent
        self._program: Program
        if agent.program is not None:
            threads = ThreadWorkers(agent.concurrency)
            self._program = FunctionAgent(agent.program, agent.args, threads)
        else:
            assert agent.command is not None
            by_status = agent.reward == "exit_status"
            self._program = CommandAgent(agent.command, agent.folder, by_status, agent.secrets)
        self._threads = ThreadWorkers()  # in which rows are read and graders called

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        attempt = await self._threads.call(self._tasks.attempt, task.order, task.number)
        shown = (*self._tasks.few_shot, *attempt.prompt)
        episodes: list[Any] = [
            ProgramEpisode(attempt, shown, self._program, self._graded, self._threads)
            for _ in members
        ]
        return episodes

    async def close(self) -> None:
        self._program.close()


@define(eq=False)
class ProgramEpisode(RunningEpisode):
    """An episode that is a run of the program."""

    attempt: ProblemEpisode
    messages: Messages
    program: Program
    graded: bool
    threads: ThreadWorkers
    first: Observation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.first = self.attempt.first

    async def run(self, endpoint: AgentEndpoint) -> Observation:
        graded = self.graded and self.program.workflow is None  # which rewards itself
        given = await self.program.run(
            AgentRun(
                base_url=f"{endpoint.url}/v1",
                api_key=endpoint.key,
                model=endpoint.model,
                task=dict(self.attempt.row.fields),
                messages=[dict(message) for message in self.messages],
                anthropic_url=endpoint.url,
                policy=_PolicyElsewhere(endpoint.policy, asyncio.get_running_loop()),
                grade=self._grade if self.graded else None,
            )
        )
        end, answer = outcome_of(given, self.program.name, graded)
        if not graded:
            return end
        transcript = endpoint.transcript()
        if answer is None:
            answer = text_of(transcript[-1]) if transcript else ""
        reward, row = self.attempt.reward, self.attempt.row
        graded = await self.threads.call(reward, answer, row, transcript)
        graded += await reward.on_loop(answer, row, transcript)
        metrics = {**end.metrics, **graded.metrics}
        end = evolve(end, reward=graded.reward, metrics=metrics, components=graded.components)
        return evolve(end, steps=graded.steps)

    def _grade(self, reply: str) -> float:
        """Return what graders say of a reply, without those that wait for others."""
        return self.attempt.reward(reply, self.attempt.row, ()).reward or 0.0

    async def close(self) -> None:
        """Do nothing: the program ends with :meth:`run`."""


def outcome_of(given: Any, who: str, graded: bool) -> tuple[Observation, str | None]:
    """Return the end of an agent's episode, and its answer, if it has given one.

    ``given``: the answer if it is ``graded``, else the reward; or a mapping with either by name,
    beside other numbers. None: its last reply is the answer. Raise ContractError for anything else,
    with ``who`` as the subject.
    """
    if not isinstance(given, Mapping):
        given = {} if given is None else {ANSWER if graded else REWARD: given}
    parts = dict(given)
    answer, reward = parts.pop(ANSWER, None), parts.pop(REWARD, None)
    if graded and reward is not None:
        raise ContractError(f"{who} gave a reward, and something else rewards it already")
    if not graded and reward is None:
        raise ContractError(
            f"{who} gave no reward, and no grader makes one of its answer",
            "let it return a number, or give the agent a `grader`",
        )
    numbers = dict[str, float]()
    for name, value in (parts if reward is None else {REWARD: reward, **parts}).items():
        number = as_number(value)
        if not isinstance(name, str) or number is None:
            raise ContractError(f"{who} gave a {type(value).__name__} as {name!r}, not a number")
        numbers[name] = number
    total = numbers.pop(REWARD, None)
    return Observation("", total, True, numbers), None if answer is None else str(answer)
