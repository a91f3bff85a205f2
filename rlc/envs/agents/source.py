"""The environment ``agent()``: rows as tasks, each worked on by a run of the program.

The runtime gives each run an endpoint of its own, where the model that is trained answers; the
episode is what was asked there. Its end is that of the program, its reward what the program gives,
or what graders say of its answer and of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, evolve, field

from rlc.data.grading.rewards import Messages
from rlc.envs.agents.outcome import Outcome, outcome_of
from rlc.envs.agents.programs import AgentRun, Program, make_program
from rlc.envs.base import AgentEndpoint, AsyncEpisode, Observation, RunningEpisode, TaskKey
from rlc.envs.problems.source import Attempt, ProblemSource
from rlc.envs.tool_chat import text_of
from rlc.envs.workers.threads import ThreadWorkers
from rlc.plan.environments import EnvPlan


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
            AgentEpisode(attempt, shown, self._program, self._graded, self._threads)
            for _ in members
        ]
        return episodes

    async def close(self) -> None:
        self._program.close()


@define(eq=False)
class AgentEpisode(RunningEpisode):
    """An episode that is a run of the program."""

    attempt: Attempt
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
        outcome = outcome_of(given, self.program.name, self.graded)
        return await self._rewarded(outcome, endpoint.transcript())

    async def close(self) -> None:
        """Do nothing: the program ends with :meth:`run`."""

    async def _rewarded(self, outcome: Outcome, transcript: Messages) -> Observation:
        end = Observation("", outcome.reward, True, outcome.metrics)
        if not self.graded:
            return end
        answer = outcome.answer
        if answer is None:
            answer = text_of(transcript[-1]) if transcript else ""
        reward, row = self.attempt.reward, self.attempt.row
        graded = await self.threads.call(reward, answer, row, transcript)
        graded += await reward.on_loop(answer, row, transcript)
        return evolve(
            end,
            reward=graded.reward,
            metrics={**outcome.metrics, **graded.metrics},
            components=graded.components,
        )
