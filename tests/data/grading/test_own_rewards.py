"""What a reply is worth: graders and functions of the user's own, added up by weight."""

from __future__ import annotations

import asyncio
import math
import pickle
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from problem_support import data_row, grader

from rlc.data.errors import DataError
from rlc.data.grading.rewards import Messages, OwnFunction, Reward, RewardError

Row = Mapping[str, Any]
ASKED: Messages = ({"role": "user", "content": "?"}, {"role": "assistant", "content": "four"})


def length(reply: str, row: Row) -> float:
    return len(reply) / float(row["longest"])


def parts(reply: str, row: Row) -> dict[str, float]:
    return {"brief": float(len(reply) < 3), "loud": reply.isupper()}


def turns(messages: Messages, row: Row) -> int:
    return len(messages)


async def later(reply: str, row: Row) -> float:
    await asyncio.sleep(0)
    return float(reply == "four")


async def later_parts(conversation: Messages, row: Row) -> dict[str, float]:
    return {"last": len(conversation[-1]["content"])}


class Judge:
    async def __call__(self, reply: str, row: Row) -> float:
        return 0.25


judge = Judge()


def given(reply: str, row: Row) -> Any:
    return row["given"]


def coroutine(reply: str, row: Row) -> Any:
    return later(reply, row)


def leaves(reply: str, row: Row) -> float:
    raise SystemExit(3)


def alone(reply: str) -> float:
    return 1.0


def own(name: str, weight: float = 1.0, **weights: float) -> Any:
    return grader(name, weight, function=f"{__name__}:{name}", weights=weights)


def reward(*graders: Any, format_coef: float = 0.1) -> Reward:
    return Reward(graders, "answer", format_coef)


def test_process_rewards_stand_beside_the_numbers() -> None:
    row = data_row(given={"tone": 0.5, "steps": [(2, 1.0), [4, -0.5]]})
    found = reward(own("given", 2.0))("four", row, ASKED)
    assert (found.reward, found.metrics) == (1.0, {"tone": 0.5})
    assert found.steps == [(2, 2.0), (4, -1.0)]
    both = reward(own("given", 2.0), own("given"))("four", row, ASKED)
    assert both.steps == [(2, 2.0), (4, -1.0), (2, 1.0), (4, -0.5)]
    alone = data_row(given={"steps": []})
    assert reward(own("given"))("four", alone, ASKED).steps == []
    number = data_row(given={"steps": 3})  # a number by that name is one, as ever
    assert reward(own("given"))("four", number, ASKED).steps is None
    wrong = data_row(given={"steps": [(5, 1.0)]})
    with pytest.raises(RewardError, match="steps that cannot be used: a part ends at 5"):
        reward(own("given"))("four", wrong, ASKED)


FOUR = data_row(id="q7", answer="4", longest=8)


def test_a_reward_is_the_weighted_sum_of_its_parts() -> None:
    whole = reward(grader("numeric"), own("length", -0.5), own("parts", 2.0, brief=1.0, loud=0.1))
    seen = whole("IV", FOUR, ASKED)
    assert seen.reward == pytest.approx(0.0 - 0.1 - 0.5 * 2 / 8 + 2 * (1.0 + 0.1))
    assert seen.metrics == {
        "correct": 0.0,
        "format": 0.0,
        "length": 0.25,
        "parts": pytest.approx(1.1),
        "parts/brief": 1.0,
        "parts/loud": 1.0,
    }


def test_the_numbers_of_a_function_alone_have_their_own_names() -> None:
    seen = reward(own("parts", 0.5))("no", FOUR, ASKED)
    assert (seen.reward, seen.metrics) == (0.5, {"brief": 1.0, "loud": 0.0})


@pytest.mark.parametrize(
    ("reply", "expected"), [("\\boxed{4}", 1.0), ("5", 0.0), ("none", -0.3), ("\\boxed{x}", -0.3)]
)
def test_a_reply_without_an_answer_costs_the_format(reply: str, expected: float) -> None:
    seen = reward(grader("numeric"), format_coef=0.3)(reply, FOUR, ASKED)
    assert seen.reward == pytest.approx(expected)
    assert seen.metrics == {"correct": max(expected, 0.0), "format": float(expected >= 0)}


def test_the_first_parameter_says_what_a_function_is_given() -> None:
    assert reward(own("turns"))("four", FOUR, ASKED).reward == 2.0
    seen = asyncio.run(reward(own("later_parts")).on_loop("four", FOUR, ASKED))
    assert seen.metrics == {"last": 4.0}


@pytest.mark.parametrize(("name", "expected"), [("later", 1.0), ("judge", 0.25)])
def test_functions_that_are_async_are_awaited_apart(name: str, expected: float) -> None:
    whole = reward(grader("numeric"), own(name, 0.5))
    assert whole.is_awaited
    first = whole("four", FOUR, ASKED)
    assert "correct" in first.metrics
    assert name not in first.metrics
    more = asyncio.run(whole.on_loop("four", FOUR, ASKED))
    assert (more.reward, more.metrics) == (0.5 * expected, {name: expected})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "returned None instead of a number: is a `return` missing?"),
        (math.nan, "returned nan instead of a finite number"),
        (math.inf, "returned inf instead of a finite number"),
        (10**400, "instead of a finite number"),
        ("0.5", "returned '0.5' instead of a finite number"),
        ((1.0, {}), r"returned \(1.0, {}\) instead of a finite number"),
        ({}, "returned {}: each number needs a name"),
        ({"": 1.0}, "returned {'': 1.0}: each number needs a name"),
        ({3: 1.0}, "returned {3: 1.0}: each number needs a name"),
        ({"tone": None}, "returned None instead of a number: .* as 'tone'"),
        ({"tone": "high"}, "returned 'high' instead of a finite number as 'tone'"),
    ],
)
def test_what_is_no_reward_names_function_row_and_value(value: Any, said: str) -> None:
    row = data_row(id="q7", given=value)
    with pytest.raises(RewardError, match=said) as found:
        reward(own("given"))("x", row, ASKED)
    assert found.value.cause == "reward"
    start = f"rows.jsonl:3: `{__name__}:given`, for the row with id 'q7', returned "
    assert str(found.value).startswith(start)


@pytest.mark.parametrize("value", [True, 3, 0.5, SimpleNamespace(item=lambda: 0.25)])
def test_what_is_a_number(value: Any) -> None:
    plain = value.item() if hasattr(value, "item") else float(value)
    assert reward(own("given"))("x", data_row(given=value), ASKED).reward == plain


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": 1.0}, "returned numbers named 'a', and `weights` names 'a', 'b'"),
        ({"a": 1.0, "b": 0, "c": 1}, "returned numbers named 'a', 'b', 'c', and `weights` names"),
        (1.0, "returned a number alone, and `weights` names 'a', 'b'"),
    ],
)
def test_with_weights_the_names_are_settled(value: Any, said: str) -> None:
    with pytest.raises(RewardError, match=said):
        reward(own("given", a=1.0, b=0.5))("x", data_row(given=value), ASKED)


def test_a_coroutine_that_nothing_awaits() -> None:
    with pytest.raises(RewardError, match="returned a coroutine, which nothing awaits"):
        reward(own("coroutine"))("x", FOUR, ASKED)


def test_a_function_that_raises_is_named_with_its_line() -> None:
    with pytest.raises(
        RewardError, match=r"raised KeyError: 'longest' \(.*test_own_rewards.py:\d+\)"
    ):
        reward(own("length"))("x", data_row(), ASKED)
    with pytest.raises(RewardError, match="raised SystemExit: 3"):
        reward(own("leaves"))("x", data_row(), ASKED)


def test_its_own_traceback_comes_with_the_error() -> None:
    try:
        reward(own("length"))("x", data_row(), ASKED)
    except RewardError as error:
        lines = "".join(traceback.format_exception(error))
    assert 'return len(reply) / float(row["longest"])' in lines


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("alone", "does not take two arguments, the reply and the row; write `def reward"),
        ("ASKED", "type tuple, which cannot be called"),
        ("lenght", "has no `lenght`; did you mean `length`?"),
    ],
)
def test_functions_that_cannot_be_rewards(name: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        OwnFunction(f"{__name__}:{name}", {})


def test_it_is_made_again_in_another_process() -> None:
    whole = reward(grader("regex", pattern="(.)"), own("parts", 0.5, brief=1.0, loud=2.0))
    copy = pickle.loads(pickle.dumps(whole))
    assert copy("4", FOUR, ASKED) == whole("4", FOUR, ASKED)
    assert pickle.loads(pickle.dumps(whole)) is copy


@pytest.mark.parametrize("name", ["given", "coroutine"])
def test_functions_are_tried_on_the_first_rows(name: str) -> None:
    rows = [data_row(given=1.0), data_row(given=None)]
    with pytest.raises(RewardError, match="returned"):
        reward(own(name)).try_on(rows, "rows.jsonl", lambda _: ASKED)


def test_a_trial_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlc.data.grading.rewards._TRIAL_SECONDS", 0.01)
    with pytest.raises(RewardError, match=r"rows.jsonl:3: .*forever` did not return within"):
        reward(own("forever")).try_on([FOUR], "rows.jsonl", lambda _: ASKED)


def test_a_trial_is_about_the_prompt_of_the_row() -> None:
    whole = reward(own("conversed"))
    whole.try_on([FOUR], "rows.jsonl", lambda row: ({"role": "user", "content": row.fields["id"]},))
    with pytest.raises(RewardError, match="raised ValueError: q8"):
        whole.try_on([FOUR], "rows.jsonl", lambda _: ({"role": "user", "content": "q8"},))


def conversed(messages: Messages, row: Row) -> float:
    asked, said = (message["content"] for message in messages)
    if asked != row["id"] or not said:
        raise ValueError(asked)
    return 1.0


async def forever(reply: str, row: Row) -> float:
    await asyncio.Event().wait()
    return 1.0


def files(folder: Path, texts: Mapping[str, str]) -> Sequence[Path]:
    paths = [folder / name for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return paths


def test_a_function_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one name are different modules, and find what stands beside them."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = "import {0}_helper\n\ndef reward(reply, row):\n    return {0}_helper.WORTH\n"
    one, two, _, _ = files(
        tmp_path,
        {
            "one/own_rewards.py": text.format("one"),
            "two/own_rewards.py": text.format("two"),
            "one/one_helper.py": "WORTH = 1\n",
            "two/two_helper.py": "WORTH = 2\n",
        },
    )
    plans = [grader("reward", function=f"{path}:reward") for path in (one, two)]
    assert [reward(plan)("x", FOUR, ASKED).reward for plan in plans] == [1.0, 2.0]
    with pytest.raises(DataError, match=r"there is no file .*three.py"):
        OwnFunction(f"{tmp_path / 'three.py'}:reward", {})
