"""The environment ``agent()``: rows as tasks, each worked on by a run of the program.

The runtime gives each run an endpoint of its own, where the model that is trained answers; the
episode is what was asked there. Its end is that of the program, its reward what the program gives,
or what graders say of its answer and of the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from rlc.chat import ContractError, Observation, text_of
from rlc.data import Messages, as_number
from rlc.envs.agents.programs import AgentRun, Program, make_program
from rlc.envs.base import AgentEndpoint, AsyncEpisode, RunningEpisode, TaskKey
from rlc.envs.problems import ProblemEpisode, ProblemSource
from rlc.envs.workers.threads import ThreadWorkers
from rlc.plan import EnvPlan

REWARD, ANSWER = "reward", "answer"


class AgentSource:
    """See :class:`rlc.envs.base.AsyncSource`. Nothing runs before an episode is played."""

    def __init__(self, plan: EnvPlan, tasks: ProblemSource) -> None:
        """Raise DataError if the program is not found."""
        assert plan.agent is not None
        self.count = tasks.count
        self._tasks = tasks
        self._graded = bool(plan.graders or plan.judging)
        self._program = make_program(plan.agent)
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
        given = await self.program.run(
            AgentRun(
                base_url=f"{endpoint.url}/v1",
                api_key=endpoint.key,
                model=endpoint.model,
                task=dict(self.attempt.row.fields),
                messages=[dict(message) for message in self.messages],
                anthropic_url=endpoint.url,
            )
        )
        end, answer = outcome_of(given, self.program.name, self.graded)
        return await self._graded(end, answer, endpoint.transcript()) if self.graded else end

    async def close(self) -> None:
        """Do nothing: the program ends with :meth:`run`."""

    async def _graded(
        self, end: Observation, answer: str | None, transcript: Messages
    ) -> Observation:
        """The end of a run with what graders say of its answer, by default its last reply."""
        if answer is None:
            answer = text_of(transcript[-1]) if transcript else ""
        reward, row = self.attempt.reward, self.attempt.row
        graded = await self.threads.call(reward, answer, row, transcript)
        graded += await reward.on_loop(answer, row, transcript)
        metrics = {**end.metrics, **graded.metrics}
        return evolve(end, reward=graded.reward, metrics=metrics, components=graded.components)


def outcome_of(given: Any, who: str, graded: bool) -> tuple[Observation, str | None]:
    """Return how an agent ends by what it has given, and its answer, if it has given one.

    Args:
        given: its answer if it is ``graded``, else its reward; or a mapping with either by name,
            beside other numbers. None: its last reply is the answer.
        who: what it is called in messages.

    Raises:
        ContractError: it is anything else.
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
    named = {REWARD: reward} if reward is not None else {}
    numbers = {name: as_number(value) for name, value in {**named, **parts}.items()}
    for name, number in numbers.items():
        if not isinstance(name, str) or number is None:
            value = {**named, **parts}[name]
            raise ContractError(f"{who} gave a {type(value).__name__} as {name!r}, not a number")
    total = numbers.pop(REWARD, None)
    metrics = {name: number for name, number in numbers.items() if number is not None}
    return Observation("", total, True, metrics), None if answer is None else str(answer)
