"""Learning rates: as the cookbook's, ends, monotony, continuity."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.schedules import learning_rate

KINDS = ["constant", "linear", "cosine"]


def rates(kind: str, steps: int, warmup: int = 0, floor: float = 0.0) -> list[float]:
    return [learning_rate(kind, 1.0, step, steps, warmup, floor) for step in range(1, steps + 1)]


def test_constant_is_the_same_at_every_step() -> None:
    assert rates("constant", 4) == [1.0] * 4
    assert learning_rate("constant", 3e-4, 9, 10, 0, 0.0) == 3e-4


def test_linear_falls_in_equal_steps() -> None:
    assert rates("linear", 5) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert rates("linear", 2, floor=0.5) == [1.0, 0.75]


def test_cosine_is_half_way_in_the_middle() -> None:
    assert rates("cosine", 4, floor=0.2) == pytest.approx([1.0, 0.88284271, 0.6, 0.31715729])


def test_warm_up_rises_in_equal_steps_from_the_first() -> None:
    assert rates("constant", 5, warmup=4) == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates("linear", 5, warmup=2) == [0.5, 1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("kind", KINDS)
@given(
    steps=st.integers(2, 60),
    warmup=st.integers(0, 60),
    floor=st.floats(0, 1),
    rate=st.floats(1e-7, 1),
)
def test_every_schedule_rises_to_the_rate_falls_towards_the_floor_and_learns_in_every_step(
    kind: str, steps: int, warmup: int, floor: float, rate: float
) -> None:
    values = [learning_rate(kind, rate, step, steps, warmup, floor) for step in range(1, steps + 1)]
    top = min(max(warmup, 1), steps)
    rising, falling = values[:top], values[top - 1 :]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert all(0 < value <= rate for value in values)
    if warmup > 0:
        assert values[0] == pytest.approx(rate / warmup)
    if max(warmup, 1) <= steps:
        assert values[top - 1] == rate
        assert all(value >= rate * floor * (1 - 1e-12) for value in falling)
    if kind != "constant" and floor < 0.9:
        assert falling == sorted(set(falling), reverse=True)


@pytest.mark.engine
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_warm_up_every_schedule_is_the_cookbooks(kind: Any) -> None:
    scheduling = pytest.importorskip("tinker_cookbook.utils.lr_scheduling")
    for steps in (1, 2, 5, 199):
        theirs = [
            scheduling.compute_schedule_lr_multiplier(kind, step, steps) for step in range(steps)
        ]
        assert rates(kind, steps) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_there_are_no_jumps(kind: str) -> None:
    values = rates(kind, 1000, warmup=100)
    jumps = [abs(b - a) for a, b in pairwise(values)]
    assert max(jumps) < 0.011


def test_a_single_step_has_the_full_rate() -> None:
    assert [rates(kind, 1) for kind in KINDS] == [[1.0]] * 3


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no learning-rate schedule 'step'"):
        learning_rate("step", 1.0, 1, 10)
