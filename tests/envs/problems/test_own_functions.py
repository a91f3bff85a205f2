"""Functions of the user's own as rewards: where they run, what becomes of their errors."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from problem_support import ARGS, grader, jsonl

from rlc.chat.turns import Action, Observation
from rlc.data.grading.rewards import RewardError
from rlc.envs.base import AsyncSource, TaskKey
from rlc.envs.problems import ProblemSource
from rlc.envs.workers.async_adapter import make_async
from rlc.plan.environments import GraderPlan

ROWS = [{"question": "Say hello.", "answer": "hello"}]
PROCESSES = {"kind": "processes", "count": 1, "executor": None}


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def blocking(reply: str, row: Mapping[str, Any]) -> bool:
    return not in_main_thread()


async def awaited(reply: str, row: Mapping[str, Any]) -> bool:
    await asyncio.sleep(0)
    return in_main_thread() or reply == "hello"  # as it is tried


async def endless(reply: str, row: Mapping[str, Any]) -> float:
    if reply == "no":
        await asyncio.Event().wait()
    return 1.0


def conversation(messages: Sequence[Mapping[str, str]], row: Mapping[str, Any]) -> float:
    roles = [message["role"] for message in messages]
    return float(roles == ["user", "assistant"] and messages[0]["content"] == "Say hello.")


def whole(messages: Sequence[Mapping[str, str]], row: Mapping[str, Any]) -> float:
    first, asked, _ = messages
    told = first == {"role": "system", "content": "Be brief."}
    return float(told and asked["content"] == "Say hello.\nIn one word.")


def unlucky(reply: str, row: Mapping[str, Any]) -> float:
    return row["luck"] if reply == "no" else 1.0


async def unlucky_later(reply: str, row: Mapping[str, Any]) -> float:
    return unlucky(reply, row)


def own(function: Any, weight: float = 1.0) -> GraderPlan:
    name = function.__name__
    return grader(name, weight, function=f"{__name__}:{name}")


def source(folder: Path, settings: Any, *functions: Any) -> AsyncSource:
    graders = [grader("exact"), *(own(function, 0.5) for function in functions)]
    problems = ProblemSource(jsonl(folder, ROWS), ARGS, graders)
    return problems.with_awaited(make_async(problems, settings))


def play(made: AsyncSource, reply: str, seconds: float | None = None) -> Observation:
    async def played() -> Observation:
        try:
            (episode,) = await made.open(TaskKey(0, 0, 0, 1), [0])
            assert episode.first.text == "Say hello."
            async with asyncio.timeout(seconds):
                return await episode.play(Action(reply))
        finally:
            await made.close()

    return asyncio.run(played())


def test_a_conversation_begins_as_the_model_sees_it(tmp_path: Path) -> None:
    begins = {"system": "Be brief.", "instruction": "In one word."}
    problems = ProblemSource(jsonl(tmp_path, ROWS), ARGS, [own(whole)], begins)
    assert play(make_async(problems, None), "hi").reward == 1.0


def test_functions_that_block_run_beside_the_loop_and_others_on_it(tmp_path: Path) -> None:
    seen = play(source(tmp_path, None, blocking, awaited, conversation), "hello")
    assert seen.done
    assert seen.reward == pytest.approx(1 + 3 * 0.5)
    assert seen.metrics == dict.fromkeys(
        ("correct", "format", "blocking", "conversation", "awaited"), 1.0
    )


def test_with_processes_only_what_blocks_leaves_this_one(tmp_path: Path) -> None:
    seen = play(source(tmp_path, PROCESSES, awaited, conversation), "no")
    assert seen.metrics == {"correct": 0.0, "format": 1.0, "awaited": 1.0, "conversation": 1.0}
    assert seen.reward == 1.0


def test_what_is_awaited_can_be_given_up(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        play(source(tmp_path, None, endless), "no", seconds=0.01)


@pytest.mark.parametrize(
    ("settings", "function"),
    [(None, unlucky), (None, unlucky_later), (PROCESSES, unlucky), (PROCESSES, unlucky_later)],
)
def test_the_traceback_of_a_function_comes_along(
    tmp_path: Path, settings: Any, function: Any
) -> None:
    with pytest.raises(RewardError, match=r"rows.jsonl:1: .* raised KeyError: 'luck'") as found:
        play(source(tmp_path, settings, function), "no")
    assert found.value.cause == "reward"
    lines = "".join(traceback.format_exception(found.value))
    assert 'return row["luck"] if reply == "no" else 1.0' in lines
    assert "test_own_functions.py" in lines
