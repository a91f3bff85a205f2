"""Weighted mixtures: exact shares, and a cursor that can be picked up again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.order import draw
from rlc.pricing.tokens import tasks_of
from rlc.runtime.rollouts.tasks import new_cursor

weights = st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 10), min_size=1, max_size=4)


def test_three_to_one() -> None:
    cursor = new_cursor(["a", "b"])
    drawn = draw({"a": 3.0, "b": 1.0}, cursor, 8)
    assert Counter(env for env, _ in drawn) == {"a": 6, "b": 2}
    assert cursor == {"a": 6, "b": 2}


@given(weights, st.integers(1, 60))
def test_every_share_is_within_one_task_of_its_weight(mix: dict[str, float], count: int) -> None:
    cursor = new_cursor(list(mix))
    draw(mix, cursor, count)
    total = sum(mix.values())
    for env, weight in mix.items():
        assert abs(cursor[env] - weight / total * count) < len(mix)


@given(weights, st.integers(1, 40), st.integers(1, 5))
def test_no_environment_has_more_tasks_than_high(
    mix: dict[str, float], count: int, steps: int
) -> None:
    """A task is a whole one, so a step may have more of an environment than its share."""
    cursor = new_cursor(list(mix))
    for _ in range(steps):
        draw(mix, cursor, count)
    envs: list[Any] = [SimpleNamespace(name=name, weight=weight) for name, weight in mix.items()]
    for env in envs:
        assert cursor[env.name] <= steps * tasks_of(env, envs, count, "high")


@given(weights, st.integers(0, 30), st.integers(0, 30))
def test_a_resumed_draw_goes_on_where_it_stopped(
    mix: dict[str, float], before: int, after: int
) -> None:
    whole, parts = new_cursor(list(mix)), new_cursor(list(mix))
    expected = draw(mix, whole, before + after)
    assert draw(mix, parts, before) + draw(mix, parts, after) == expected


@given(weights, st.integers(1, 40))
def test_task_numbers_of_an_environment_count_up(mix: dict[str, float], count: int) -> None:
    drawn = draw(mix, new_cursor(list(mix)), count)
    for env in mix:
        numbers = [number for name, number in drawn if name == env]
        assert numbers == list(range(len(numbers)))
