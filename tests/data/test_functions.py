"""Functions of the user's own: what they are given and may return, and how a mistake reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlc.algo import Episodes
from rlc.data import SEES, AdvantageFunction, ChoiceFunction, Code, SampleBatch, WeightsFunction
from rlc.data.errors import DataError
from rlc.records import evolve

ADVANTAGES = """
import numpy as np

def by_episode(total_R):
    return total_R - total_R.mean()

def by_turn(rewards_N, episode_N, total_R):
    return rewards_N - total_R.mean() + 0.0 * episode_N, total_R > 0

def counted(total_R, state, by = 1):
    state["steps"] = state.get("steps", 0) + np.int64(by)
    state["means"] = [*state.get("means", []), total_R.mean()]
    return np.full(len(total_R), state["steps"])

def spoils(rewards_N, total_R):
    rewards_N[:] = 7.0
    return total_R

def of_three(total_R): return total_R[:3]
def of_nothing(total_R): print(total_R)
def forgetful(total_R):
    if total_R.any():
        return None
    return total_R
def unnumbered(total_R): return ["good"] * len(total_R)
def infinite(total_R): return total_R / 0
def raising(total_R): return total_R["first"]
def keeping_numbers(total_R): return total_R, total_R
def keyed(total_R, state):
    state[3] = 1
    return total_R
def hoarding(total_R, state):
    state["all"] = "x" * 200_000
    return total_R
def holding(total_R, state):
    state["seen"] = {1, 2}
    return total_R
def unknown(total_R, state):
    state["mean"] = float("nan")
    return total_R
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "credit.py").write_text(ADVANTAGES)
    return tmp_path


def advantage(folder: Path, name: str, **args: Any) -> AdvantageFunction:
    return AdvantageFunction(Code(f"{folder / 'credit.py'}:{name}", "advantage", args))


EPISODES = evolve(
    Episodes.from_rollouts(
        [[0.0, 1.0], [0.5], [0.0]],
        [[3, 4], [5], [6]],
        [0, 0, 1],
        [0, 0, 0],
        parts_R=[{"right": (1.0, [0.0, 1.0])}, {"right": (1.0, [0.5])}, {"right": (1.0, [0.0])}],
    ),
    envs=("sums",),
    roles=("",),
    step=4,
)


def test_it_is_given_plain_arrays_by_name() -> None:
    columns = EPISODES.columns()
    assert {*columns, "state"} == {*SEES["advantage"]} == {*SampleBatch().columns(1), "state"}
    assert columns["episode_N"].tolist() == [0, 0, 1, 2]
    assert columns["total_R"].tolist() == [1.0, 0.5, 0.0]
    assert columns["length_R"].tolist() == [7, 5, 6]
    assert columns["env_R"].tolist() == ["sums"] * 3
    assert columns["components"]["right"].tolist() == [0.0, 1.0, 0.5, 0.0]
    sample = SampleBatch(components=("right",)).columns(1)
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            assert column.dtype.kind == sample[name].dtype.kind, name


def test_it_returns_one_for_each_episode_or_turn_and_which_are_kept(folder: Path) -> None:
    columns = EPISODES.columns()
    advantages, kept, _ = advantage(folder, "by_episode")(columns, {})
    assert advantages.tolist() == [0.5, 0.5, 0.0, -0.5]
    assert kept.all()
    advantages, kept, _ = advantage(folder, "by_turn")(columns, {})
    assert advantages.tolist() == [-0.5, 0.5, 0.0, 0.0]  # nothing is left of what is not kept
    assert kept.tolist() == [True, True, False]


def test_its_state_is_what_a_journal_holds(folder: Path) -> None:
    """Otherwise a run would see another one after it was resumed."""
    function = advantage(folder, "counted", by=2)
    *_, state = function(EPISODES.columns(), {})
    *_, state = function(EPISODES.columns(), state)
    assert state == {"steps": 4, "means": [0.5, 0.5]}
    assert type(state["steps"]) is int


def test_what_it_does_to_its_arrays_is_its_own_affair(folder: Path) -> None:
    advantage(folder, "spoils")(EPISODES.columns(), {})
    assert EPISODES.rewards_N.tolist() == [0.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("of_three", r"an array of shape \(3,\), and .* each of 8 episodes, \(8,\)"),
        ("of_nothing", "returned None: is a `return` missing"),
        ("forgetful", "returned None: is a `return` missing"),
        ("unnumbered", "which is no array of numbers"),
        ("infinite", "returned inf for episode 0"),
        ("raising", r"raised IndexError: .*credit.py:27"),
        ("keeping_numbers", "which episodes are kept is one bool for each"),
        ("keyed", "no journal can hold: the key 3 is no text"),
        ("hoarding", "a `state` of 200,011 characters as JSON, of at most 100,000"),
        ("holding", "no journal can hold: a value of the type set"),
        ("unknown", "no journal can hold: Out of range float"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_no_run_can_use_is_refused(folder: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        advantage(folder, name).try_on(SampleBatch(turns=1))


CHOICES = """
def shortest(episodes): return sorted(episodes, key=lambda e: e.tokens)[:2]
def flags(episodes): return [e.reward > 0 for e in episodes]
def twice(episodes): return [episodes[0], episodes[0]]
def one(episodes): return episodes[0]
def named(episodes, least): return [e for e in episodes if e.components["clear"] >= least]
"""


def choice(folder: Path, name: str, **args: Any) -> ChoiceFunction:
    (folder / "choice.py").write_text(CHOICES)
    return ChoiceFunction(Code(f"{folder / 'choice.py'}:{name}", "choice", args))


def test_a_choice_is_the_episodes_that_it_returns(folder: Path) -> None:
    episodes = SampleBatch().episodes(4)[::-1]
    assert choice(folder, "shortest")(episodes) == [3, 2]
    assert choice(folder, "named", least=0.5)(episodes) == [0, 1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flags", r"\[False, True, True, True\], which is no choice of its `episodes`"),
        ("one", "which is no choice"),
        ("twice", "returned an episode twice"),
    ],
)
def test_what_is_no_choice_is_refused(folder: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        choice(folder, name).try_on(SampleBatch())


WEIGHTS = """
import numpy as np
def fresh(played_T): return 1.0 / (1 + played_T)
def none(played_T): return 0 * played_T
def below(played_T): return played_T - 1
def unknown(reward_T): return 1 - reward_T
def other(played_T): return [1.0]
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "gives every task the weight 0"),
        ("below", "returned -1 for task 0; no weight is below 0"),
        ("unknown", "returned nan for task 0; a weight is a finite number"),
        ("other", r"a weight is due for each of 6 tasks, \(6,\)"),
    ],
)
def test_weights_that_draw_nothing_are_refused(folder: Path, name: str, message: str) -> None:
    (folder / "tasks.py").write_text(WEIGHTS)
    WeightsFunction(Code(f"{folder / 'tasks.py'}:fresh", "weights")).try_on(SampleBatch())
    with pytest.raises(DataError, match=message):
        WeightsFunction(Code(f"{folder / 'tasks.py'}:{name}", "weights")).try_on(SampleBatch())
