"""Before a run pays for replies, the problems' own answers are graded: a grader that calls them
wrong would show 0 % whatever the model says."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from problem_support import jsonl, problem_source

from rlc.chat.turns import Action, Observation
from rlc.data.errors import DataError
from rlc.data.grading.countdown import TEST_SIZE
from rlc.envs.base import TaskKey
from rlc.envs.workers.async_adapter import make_async, pickle_source


def rows(folder: Path, answers: Sequence[Any], name: str = "rows.jsonl") -> str:
    found = [{"question": f"Which is number {n}?", "answer": a} for n, a in enumerate(answers)]
    return jsonl(folder, found, name)


# The field that was meant holds whole solutions, longer than any answer that is compared.
WORKED = [f"The area is {n} * {n}. " + "Let us see. " * 200 for n in range(4)]


def test_a_grader_that_cannot_read_the_answers_is_found_at_once(tmp_path: Path) -> None:
    message = (
        r"`grader = math` calls the right answers of .* wrong "
        r"\(4 of the first 4, such as 'The area is 0"
    )
    with pytest.raises(DataError, match=message):
        problem_source(rows(tmp_path, WORKED), {"grader": "math"})
    problem_source(rows(tmp_path, ["0", *WORKED[:1]]), {"grader": "math"})


@pytest.mark.parametrize(
    ("grader", "answers"),
    [
        ("math", ["\\frac{1}{2}", "x^2 + 1", "12", "so it is \\boxed{7}"]),
        ("numeric", ["1,200", "3/4", "-7", "work\n#### 18"]),
        ("exact", ["Paris", "a b  c", "work\n#### no"]),
    ],
)
def test_right_answers_pass(tmp_path: Path, grader: str, answers: list[str]) -> None:
    source = problem_source(rows(tmp_path, answers), {"grader": grader})
    assert source.count == len(answers)


def test_a_few_odd_rows_are_no_reason_to_stop(tmp_path: Path) -> None:
    problem_source(rows(tmp_path, ["1", "2", WORKED[0]]), {"grader": "math"})


def test_a_solved_problem_must_be_right_itself(tmp_path: Path) -> None:
    """The model imitates it: what it shows must be what the grader wants to see."""
    shots = rows(tmp_path, ["It is 4.", "The answer: 5"], "shots.jsonl")
    pattern = {"grader": "regex", "pattern": r"The answer: (\d+)"}
    data = rows(tmp_path, ["5"])
    with pytest.raises(DataError, match=r"shots.jsonl:1: its own answer would be graded"):
        problem_source(data, pattern | {"few_shot": shots})
    shown = tmp_path / "right.jsonl"
    shown.write_text(json.dumps({"question": "?", "answer": "so \\boxed{4}"}) + "\n")
    source = problem_source(data, {"few_shot": str(shown)})
    assert [message["content"] for message in source.few_shot] == ["?", "so \\boxed{4}"]


@pytest.mark.parametrize("grader", ["math", "exact", "numeric", "regex", "countdown"])
def test_every_grader_can_go_to_another_process(tmp_path: Path, grader: str) -> None:
    pattern = {"pattern": r"\d+"} if grader == "regex" else {}
    data = "countdown" if grader == "countdown" else rows(tmp_path, ["4", "5"])
    pickle_source(problem_source(data, {"grader": grader} | pattern))


def test_a_worker_process_grades_the_same(tmp_path: Path) -> None:
    async def played() -> list[Observation]:
        source = make_async(
            problem_source(rows(tmp_path, ["4"])),
            {"kind": "processes", "count": 1, "executor": None},
        )
        try:
            episodes = await source.open(TaskKey(0, 0, 0, 3), [0, 1, 2])
            replies = ("\\boxed{4}", "5", "none")
            return [
                await episode.play(Action(reply))
                for episode, reply in zip(episodes, replies, strict=True)
            ]
        finally:
            await source.close()

    assert [after.reward for after in asyncio.run(played())] == [1.0, 0.0, -0.1]


def test_the_public_countdown_problems_are_split_once_and_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published = [{"target": n % 90 + 10, "nums": [n, 1, 2]} for n in range(1_500)]

    def load(name: str, config: str | None, **_: Any) -> dict[str, Any]:
        assert (name, config) == ("Jiayi-Pan/Countdown-Tasks-3to4", None)
        return {"train": published}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    settings = {"grader": "countdown", "format_coef": 0.0}
    splits = {
        split: problem_source("countdown_tasks", settings | {"split": split})
        for split in ("train", "test", "stage2", "stage3")
    }
    asked = {
        split: {source.numbered(0, n, 1)[0].first.text for n in range(source.count or 0)}
        for split, source in splits.items()
    }
    assert splits["test"].count == TEST_SIZE
    assert len(asked["train"] | asked["test"]) == len(published)
    assert not asked["train"] & asked["test"]
    assert not asked["stage2"] & asked["stage3"]
    assert len(asked["stage2"]) == len(asked["stage3"]) == (len(published) - TEST_SIZE) // 2
    assert asked["stage2"] | asked["stage3"] <= asked["train"]
