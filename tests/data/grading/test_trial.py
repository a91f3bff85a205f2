"""Code that a recipe names is tried in a process of its own, regardless of what it does there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlc.data.calls import Code
from rlc.data.errors import FilePlace
from rlc.data.grading.panel import EMPTY, LONG
from rlc.data.grading.rewards import CodeFailure, CodeTrial, Reward, TriedCode
from rlc.data.rows import DataRow
from rlc.plan.environments import GraderPlan

CODE = """\
import os, threading, time
print("noise of the import")
threading.Thread(target=time.sleep, args=(600,)).start()


def steady(reply, row):
    print("noise of the call")
    return float(len(reply))


def inner(row):
    return row["tone"]


def nested(reply, row):
    return inner(row)


def late(reply, row):
    return None if row["n"] == 2 else 1.0


def only_wrong(reply, row):
    assert reply != row["solution"]
    return 0.0


def inverted(reply, row):
    return float(row["solution"] not in reply)


def wide(reply, row):
    return {"right": float(row["solution"] in reply), "length": len(reply)}


def dies(reply, row):
    os._exit(3)


def wrapped(reply, row): ...
wrapped = lambda reply: reply
"""


def tried(tmp_path: Path, name: str, text: str = CODE) -> CodeFailure | None:
    return outcome(tmp_path, name, text).failure


def outcome(tmp_path: Path, name: str, text: str = CODE) -> TriedCode:
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    target = f"{tmp_path / 'own.py'}:{name}"
    grader = GraderPlan("own", 1.0, "grade_with", {"function": target, "weights": {}})
    rows = [DataRow({"n": n, "solution": str(n)}, FilePlace("rows.jsonl", n, n)) for n in (1, 2)]
    asked = tuple((row, ({"role": "user", "content": "Go."},)) for row in rows)
    recipe = str(tmp_path / "recipe.rl")
    return CodeTrial(recipe, Code(target, "reward"), grader, None, asked, 300).tried()


def test_what_works_is_not_reported_and_its_noise_and_threads_do_no_harm(tmp_path: Path) -> None:
    assert tried(tmp_path, "steady") is None


@pytest.mark.parametrize(
    ("name", "step", "said"),
    [
        ("nested", "reward", "raised KeyError: 'tone'"),
        ("late", "reward", "returned None instead of a number"),
        ("only_wrong", "reward", "raised AssertionError"),  # the row's own answer is tried, too
        ("dies", "import", "ended Python with exit status 3"),
        ("wrapped", "call", "does not take two arguments"),
        ("stedy", "import", "has no `stedy`"),
    ],
)
def test_what_is_wrong(tmp_path: Path, name: str, step: str, said: str) -> None:
    found = tried(tmp_path, name)
    assert found is not None
    assert found.step == step
    assert said in found.error.what


def test_what_a_reward_pays_for_is_compared(tmp_path: Path) -> None:
    assert not outcome(tmp_path, "steady").falls  # it pays for length
    assert outcome(tmp_path, "inverted").falls
    wide = outcome(tmp_path, "wide")
    assert not wide.falls
    assert wide.moved == {"right": 1.0, "length": 299.0}


def test_a_reward_that_fails_on_silence_is_still_tried_on_what_else_knows_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "short.py").write_text(
        "def first(reply, row):\n    return reply.split()[0] != '1'\n"
    )
    target = f"{tmp_path / 'short.py'}:first"
    grader = GraderPlan("own", 1.0, "grade_with", {"function": target, "weights": {}})
    reward = Reward((grader,), None, 0.0)
    row = DataRow({"answer": "2"}, FilePlace("rows.jsonl", 1, 1)), ({"content": "1 or 2?"},)
    other = DataRow({"answer": "1"}, FilePlace("rows.jsonl", 2, 2)), ({"content": "2 or 1?"},)
    found = {one.reply for one in reward.unearned([row, row, other], 100)}
    assert LONG in found
    assert EMPTY not in found


def test_the_row_and_the_places_in_ones_own_code_are_named(tmp_path: Path) -> None:
    late, nested = tried(tmp_path, "late"), tried(tmp_path, "nested")
    assert late is not None
    assert nested is not None
    assert late.error.place == FilePlace("rows.jsonl", 2, 2)
    own = str(tmp_path / "own.py")
    assert [(place.path, place.line) for place in nested.places] == [(own, 12), (own, 16)]


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("x = 1\nx / 0", "cannot be imported: ZeroDivisionError", 2),
        ("def (", "cannot be imported: SyntaxError", 1),
        ("raise SystemExit(4)", "cannot be imported: SystemExit: 4", 1),
        ("import no_such_library", "No module named 'no_such_library'", 1),
    ],
)
def test_a_module_that_fails(tmp_path: Path, text: str, said: str, line: int) -> None:
    found = tried(tmp_path, "reward", text)
    assert found is not None
    assert found.step == "import"
    assert said in found.error.what
    assert [place.line for place in found.places] == [line]
