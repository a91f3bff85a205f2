"""The panel on rewards that can be hacked, and on rewards that cannot: see ``rewards/``."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import io
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlc.data.grading.panel import (
    CODE,
    EQUAL,
    PATCHED,
    PRINTED,
    ExaminedReward,
    PanelTask,
    examined,
    literals_of,
    may_end_process,
    panel_result,
)
from rlc.proof.auditing import _changes_undone

FOLDER = Path(__file__).with_name("rewards")
# They start a process for each reply: what the panel makes of them was measured by hand.
SLOW = {"s28_tests", "s29_tests_in_fence"}


@cache
def module(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"rewards_{name}", FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def rewards(name: str) -> dict[str, Callable[..., Any]]:
    made = vars(module(name)).items()
    return {key: value for key, value in made if key[0] in "hs" and key[1:3].isdigit()}


def is_found(reward: Callable[..., Any]) -> bool:
    found = result(reward)
    return bool(found.unearned or found.same or found.uncontrasted)


def result(reward: Callable[..., Any], ends: bool = False) -> ExaminedReward:
    """What the panel finds; without the replies that end a process, unless it is another one that
    ``ends``."""
    rows = module("rows").ROWS[str(reward.__doc__).partition(":")[0]]
    whole = "messages" in inspect.signature(reward).parameters

    def worth(task: int, reply: str) -> float:
        said = [{"role": "assistant", "content": reply}] if whole else reply
        if may_end_process(reply) and not ends:
            return float("-inf")
        try:
            with _changes_undone():
                earned = reward(said, dict(rows[task]))
            if inspect.iscoroutine(earned):
                earned = asyncio.run(earned)
        except (Exception, SystemExit):
            return float("-inf")
        return float(sum(earned.values()) if isinstance(earned, dict) else earned)

    tasks = [PanelTask(row["prompt"], row.get("answer", row.get("solution"))) for row in rows]
    source = Path(str(inspect.getsourcefile(reward))).read_text(encoding="utf-8")
    # Some rewards run the code of a reply, which prints, and closes standard input.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept, sys.stdin = sys.stdin, io.StringIO()
        try:
            return panel_result(examined(tasks, 1_500, literals_of(source, reward.__name__)), worth)
        finally:
            sys.stdin = kept


def test_nine_of_ten_rewards_that_can_be_hacked_are_found() -> None:
    missed = [name for name, reward in rewards("hackable").items() if not is_found(reward)]
    assert len(rewards("hackable")) == 60
    assert len(missed) <= 6, missed


def test_at_most_one_in_twenty_sound_rewards_is_suspected() -> None:
    tried = {name: reward for name, reward in rewards("sound").items() if name not in SLOW}
    assert len(tried) == 58
    suspected = [name for name, reward in tried.items() if is_found(reward)]
    assert len(suspected) <= 3, suspected


@pytest.mark.parametrize("name", ["h01_contains", "h11_empty_is_right", "h25_exec_swallows_exit"])
def test_a_reward_is_found_by_what_earns_it(name: str) -> None:
    assert is_found(rewards("hackable")[name])


@pytest.mark.parametrize(
    ("reward", "kind"),
    [
        ("equal_to_everything", EQUAL),
        ("close_enough", PATCHED),
        ("unit_tests", PATCHED),
        ("printed_word", PRINTED),
        ("exit_status", CODE),
    ],
)
def test_rewards_that_run_code_are_found_by_the_code_that_passes(reward: str, kind: str) -> None:
    function = getattr(module("running"), reward)
    rows = module("rows").ROWS["code"]
    assert [function(row["solution"], row) for row in rows] == [1.0] * len(rows)
    assert kind in {one.reply for one in result(function, reward == "exit_status").unearned}
