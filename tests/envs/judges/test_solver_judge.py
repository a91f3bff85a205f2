"""Solvers and a judge: what each sees, what it is rewarded for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from problem_support import problem_source

from rlc.chat.prompts import PromptBuilder
from rlc.chat.turns import Action, Observation
from rlc.data import problems
from rlc.data.errors import DataError
from rlc.data.grading.countdown import row
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.judges.solver_judge import NO_SOLUTION, SolverJudge, make_solver_judge, picked_number
from rlc.envs.workers.async_adapter import make_async

USUAL = {"solvers": 2, "solver_prompt": None, "judge_prompt": None}
COUNTDOWN = {"split": "test", "grader": "countdown", "format_coef": 0.0}


def unused() -> PromptBuilder:
    raise AssertionError("no prompt is made here")


def roles(in_box: bool = False, **args: str | int | None) -> SolverJudge:
    return make_solver_judge(USUAL | args, unused, in_box)


def problem(monkeypatch: pytest.MonkeyPatch) -> AsyncEpisode:
    """1, 2 and 3 make 9."""
    monkeypatch.setattr(problems, "test_problems", lambda: (row([1, 2, 3], 9),))
    source = make_async(problem_source("countdown", COUNTDOWN))
    (episode,) = asyncio.run(source.open(TaskKey(0, 0, 0, 1), [0]))
    return episode


def step(episode: AsyncEpisode, reply: str) -> Observation:
    return asyncio.run(episode.play(Action(reply)))


RIGHT, OTHER = "(1 + 2) * 3", "1 + 2 + 3"


def outcomes(episode: AsyncEpisode, replies: Sequence[str]) -> list[tuple[str, Observation]]:
    return [(reply, step(roles().solver(episode), reply)) for reply in replies]


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        (f"I think <answer>{RIGHT}</answer>", 1.0),
        (f"<ANSWER>\n{RIGHT}\n</ANSWER>", 1.0),
        (f"<answer>{OTHER}</answer> or <answer>{RIGHT}</answer>", 0.0),  # the first one counts
        (RIGHT, 0.0),
        ("<answer>3**2</answer>", 0.0),
    ],
)
def test_a_solver_is_rewarded_for_its_own_solution(
    reply: str, reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = step(roles().solver(problem(monkeypatch)), reply)
    assert (after.reward, after.done, after.metrics["correct"]) == (reward, True, reward)


@pytest.mark.parametrize(
    ("reply", "reward", "formatted"),
    [
        ("<answer>2</answer>", 1.0, 1.0),
        ("well, <answer> 2 </answer>", 1.0, 1.0),
        ("<answer>1</answer>", 0.0, 1.0),
        ("<answer>0</answer>", 0.0, 0.0),
        ("<answer>-1</answer>", 0.0, 0.0),  # not counted from the end
        ("<answer>3</answer>", 0.0, 0.0),
        ("<answer>two</answer>", 0.0, 0.0),
        ("2", 0.0, 0.0),
        ("<answer>1</answer><answer>2</answer>", 0.0, 1.0),
    ],
)
def test_the_judge_is_rewarded_for_its_pick(
    reply: str, reward: float, formatted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = problem(monkeypatch)
    solved = outcomes(episode, [f"<answer>{OTHER}</answer>", f"<answer>{RIGHT}</answer>"])
    after = step(roles().judge(episode, solved), reply)
    assert (after.reward, after.metrics["format"]) == (reward, formatted)
    assert after.metrics["correct"] == reward
    assert after.done


def test_the_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    episode = problem(monkeypatch)
    question = episode.first.text
    solver = roles().solver(episode).first.text
    assert solver.startswith(question)
    assert "<answer> and </answer>" in solver.removeprefix(question)
    solved = outcomes(episode, ["no tags", f"<answer>{RIGHT}</answer>"])
    judge = roles().judge(episode, solved).first.text
    assert question in judge
    assert f"Solution 1:\n{NO_SOLUTION}\n\nSolution 2:\n<answer>{RIGHT}</answer>\n" in judge


def test_prompts_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "solve.j2").write_text("Solve: {{ problem }}")
    (tmp_path / "judge.j2").write_text(
        "{{ problem|length }}{% for s in solutions %} {{ loop.index }}={{ s }}{% endfor %}"
    )
    episode = problem(monkeypatch)
    own = roles(solver_prompt=str(tmp_path / "solve.j2"), judge_prompt=str(tmp_path / "judge.j2"))
    assert own.solver(episode).first.text == f"Solve: {episode.first.text}"
    judge = own.judge(episode, outcomes(episode, ["<answer>a</answer>", "b"])).first.text
    assert judge == f"{len(episode.first.text)} 1=<answer>a</answer> 2={NO_SOLUTION}"


def test_a_prompt_must_use_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "judge.j2").write_text("{{ problem }} {{ answer }}")
    message = (
        "must use the variables `problem` and `solutions` and no other; found: answer, problem"
    )
    with pytest.raises(DataError, match=message):
        roles(judge_prompt=str(tmp_path / "judge.j2"))


def test_answers_may_be_boxed() -> None:
    own = roles(in_box=True)
    assert own.solution("<answer>7</answer>") == "\\boxed{7}"
    assert own.solution("so \\boxed{7}") == "\\boxed{7}"
    assert own.solution("7") == NO_SOLUTION
    assert roles().solution("so \\boxed{7}") == "<answer>7</answer>"


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("<answer>12</answer>", 12),
        ("\\boxed{2}", 2),
        ("<answer>1_0</answer>", None),
        ("<answer>٣</answer>", None),
    ],
)
def test_the_number_of_a_pick(reply: str, number: int | None) -> None:
    assert picked_number(reply) == number
