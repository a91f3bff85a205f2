"""Solvers answer a problem, a judge picks one of their answers.

Each call is an episode of one turn, so that it is sampled, timed, repeated and credited like any
other. A solver is rewarded for its own solution, the judge for the one it picks. A judge whose
number (0 or a negative one, for example) names no solution is rewarded as an empty answer is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from rlc.catalog import ASKED, JUDGED
from rlc.chat import Action, Observation, PromptBuilder
from rlc.data import boxed, read_template, tagged
from rlc.envs.base import AsyncEpisode
from rlc.plan import SOLVED

SOLVER, JUDGE = "solver", "judge"
NO_SOLUTION = "No solution found"

_INDEX = re.compile(r"[0-9]{1,9}")


@frozen
class SolverJudge:
    """The settings of ``solver_judge()``. Prompts are made of the ``problem``, and of
    ``solutions``. With ``in_box`` the environment reads answers from ``\\boxed{…}``, not from
    ``<answer>`` tags."""

    solvers: int
    solver_prompt: Callable[..., str]
    judge_prompt: Callable[..., str]
    judge_history: Callable[[], PromptBuilder]
    in_box: bool

    def solution(self, reply: str) -> str:
        """Return the solution in a solver's reply, marked as the environment reads it."""
        answer = _answer(reply)
        if answer is None:
            return NO_SOLUTION
        return f"\\boxed{{{answer}}}" if self.in_box else f"<answer>{answer}</answer>"

    def solver(self, problem: AsyncEpisode) -> AsyncEpisode:
        first = evolve(problem.first, text=self.solver_prompt(problem=problem.first.text))

        async def grade(reply: str) -> Observation:
            return _graded(await problem.play(Action(self.solution(reply))))

        return _Turn(first, problem, grade)

    def judge(
        self, problem: AsyncEpisode, solved: Sequence[tuple[str, Observation]]
    ) -> AsyncEpisode:
        """Return the judge's turn; ``solved`` has each solver's reply and its observation."""
        solutions = [self.solution(reply) for reply, _ in solved]
        prompt = self.judge_prompt(problem=problem.first.text, solutions=solutions)

        async def grade(reply: str) -> Observation:
            picked = picked_number(reply) or 0
            found = 1 <= picked <= len(solved)
            after = solved[picked - 1][1] if found else _graded(await problem.play(Action("")))
            return evolve(after, metrics={**after.metrics, "format": float(found)})

        return _Turn(evolve(problem.first, text=prompt), problem, grade)


def make_solver_judge(
    args: dict[str, Any], judge_history: Callable[[], PromptBuilder], in_box: bool
) -> SolverJudge:
    """Read the arguments of ``solver_judge()``. Raise DataError if a file is not a template."""
    solver, judge = args["solver_prompt"], args["judge_prompt"]
    return SolverJudge(
        args["solvers"],
        read_template(solver, ASKED) if solver else usual_solver_prompt,
        read_template(judge, JUDGED) if judge else usual_judge_prompt,
        judge_history,
        in_box,
    )


def usual_solver_prompt(problem: str) -> str:
    return f"{problem.rstrip()}\n\nPut your final answer between <answer> and </answer>."


def usual_judge_prompt(problem: str, solutions: Sequence[str]) -> str:
    listed = "\n\n".join(f"Solution {i}:\n{text}" for i, text in enumerate(solutions, start=1))
    return f"""\
Here is a problem, and {len(solutions)} proposed solutions to it. Find one that is right.

Problem:
{problem.rstrip()}

{listed}

Check each solution before you decide:
1. Does it lead to the result that the problem asks for?
2. Does it keep every rule of the problem?
3. Does it use what is given, as often as it may be used?
4. Is each step of it correct when you work it out yourself?
5. Is it complete, and in the form that is asked for?

Put the number of the solution you pick between <answer> and </answer>, for example \
<answer>1</answer>."""


@frozen
class _Turn:
    """One call of a solver or the judge; ``grade`` returns the observation after its reply."""

    first: Observation
    problem: AsyncEpisode
    grade: Callable[[str], Awaitable[Observation]]

    async def play(self, action: Action) -> Observation:
        return await self.grade(action.text)

    async def close(self) -> None:
        await self.problem.close()


def _answer(reply: str) -> str | None:
    answer = tagged(reply, last=False)
    return boxed(reply) if answer is None else answer


def picked_number(reply: str) -> int | None:
    text = _answer(reply)
    return int(text) if text is not None and _INDEX.fullmatch(text) else None


def _graded(after: Observation) -> Observation:
    """Return the end of the only turn, with the metric `correct` for every environment."""
    correct = {"correct": float((after.reward or 0.0) >= SOLVED)}
    return evolve(after, text="", done=True, metrics={**correct, **after.metrics})
