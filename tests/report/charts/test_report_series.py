"""Curves of long runs are made short without losing what stands out."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlc.report.drawing import (
    Figure,
    Series,
    draw,
    figure,
    series,
    smoothed,
    table_steps,
    thinned,
    ticks,
)
from rlc.report.formatting import number


def test_a_thinned_curve_keeps_its_ends_and_its_extremes() -> None:
    random = Random(1)
    values = [random.random() for _ in range(2_000)]
    values[777], values[1_234] = 9.0, -9.0
    kept = thinned(values)
    assert len(kept) <= 242
    assert {0, 777, 1_234, 1_999} <= set(kept)
    for start in range(0, 1_920, 40):  # nothing wider than two parts is left out
        assert any(start <= i < start + 40 for i in kept)


def test_a_short_curve_stays_as_it_is() -> None:
    assert thinned([3.0, 1.0, 2.0]) == [0, 1, 2]
    assert thinned([]) == []


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-0.2, 0.2), (3, 3), (0, 0), (1e-9, 3e-9), (-5, 123_456)]
)
def test_ticks_are_few_and_enclose_the_values(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low + 1e-12
    assert marks[-1] >= high - 1e-12
    assert 2 <= len(marks) <= 7
    steps = {round((b - a) / (marks[1] - marks[0]), 6) for a, b in zip(marks, marks[1:])}  # noqa: B905, RUF007
    assert steps == {1.0}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1474, "1,474"),
        (0.8541666, "0.8542"),
        (1234.5678, "1,235"),
        (-0.25, "-0.25"),
        (5.033185e-9, "5.033e-09"),
        (2.5e7, "25,000,000"),
        (2_500_000.5, "2.5e+06"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_metric_that_is_missing_or_not_finite_leaves_a_gap() -> None:
    records: list[dict[str, Any]] = [
        {"step": 1, "a": 1.0},
        {"step": 2},
        {"step": 3, "a": math.nan},
        {"step": 4, "a": 2},
    ]
    curve = series("a", records, "a")
    assert curve == Series("a", (1, 4), (1.0, 2.0))
    assert series("b", records, "b") is None


def test_the_table_of_a_long_curve_has_its_extremes() -> None:
    values = [0.0] * 2_000
    values[3], values[1_501] = 1.0, -1.0
    steps = table_steps([Series("a", tuple(range(1, 2_001)), tuple(values))])
    assert {1, 4, 1_502, 2_000} <= set(steps)
    assert len(steps) <= 104


def test_the_moving_mean_of_a_straight_line_is_the_line() -> None:
    values = [float(i) for i in range(200)]
    means, window = smoothed(values)
    assert window == 11
    assert means[50:150] == pytest.approx(values[50:150])
    assert smoothed(values[:59]) == ([], 0)


def test_a_single_step_is_a_dot_and_a_constant_is_a_line() -> None:
    single = draw(Figure("a", "A", (Series("a", (7,), (0.5,)),)))
    assert single.curves[0].path == ""
    assert single.curves[0].dot == pytest.approx((50, 50))
    flat = draw(Figure("b", "B", (Series("b", (1, 2), (0.5, 0.5)),)))
    assert flat.curves[0].path == "M0 500L1000 500"
    assert figure("c", "C", [None]) is None


def test_paths_stay_in_their_box() -> None:
    curve = Series("a", (10, 20, 30), (-1.0, 4.0, 2.0), spread=(1.0, 1.0, 1.0))
    drawn = draw(Figure("a", "A", (curve,)))
    shapes = drawn.curves[0].path + drawn.curves[0].band
    numbers = [
        float(part) for part in shapes.replace("M", " ").replace("L", " ").strip("Z").split()
    ]
    assert all(0 <= value <= 1000 for value in numbers)
    assert [tick.text for tick in drawn.x_ticks] == ["10", "15", "20", "25", "30"]


def test_a_band_goes_along_its_upper_edge_and_back_along_the_lower() -> None:
    curve = Series("a", (0, 1), (2.0, 2.0), spread=(1.0, 2.0))  # from 1 to 3, and from 0 to 4
    drawn = draw(Figure("a", "A", (curve,)))
    assert drawn.curves[0].band == "M0 250L1000 0L1000 1000L0 750Z"


FINITE = st.floats(-1e9, 1e9)
CURVES = st.lists(
    st.dictionaries(st.integers(0, 10_000), FINITE, min_size=1, max_size=400).map(
        lambda found: Series("a", tuple(sorted(found)), tuple(found[s] for s in sorted(found)))
    ),
    min_size=1,
    max_size=3,
)


@given(FINITE, FINITE)
@example(1e9, 1e9 + 1e-7)
@example(0.0, 5e-324)
@example(-1e-300, 1e-300)
def test_ticks_span_any_two_values(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    marks = ticks(low, high)
    room = 1e-9 * max(abs(low), abs(high), 1e-300) + 1e-8 * (marks[-1] - marks[0])
    assert marks[0] <= low + room
    assert marks[-1] >= high - room
    assert 2 <= len(marks) <= 8
    assert marks == sorted(set(marks))


@given(CURVES)
def test_what_is_drawn_lies_in_its_box_and_has_all_extremes(curves: list[Series]) -> None:
    drawn = draw(Figure("a", "A", tuple(curves)))
    for curve, path in zip(curves, drawn.curves, strict=True):
        if path.dot is not None:
            assert all(-0.001 <= place <= 100.001 for place in path.dot)
            continue
        points = [tuple(map(float, p.split())) for p in path.path.removeprefix("M").split("L")]
        assert all(-1 <= value <= 1001 for point in points for value in point)
        assert [point[0] for point in points] == sorted(point[0] for point in points)
        highest = min(point[1] for point in points)
        top = points[thinned(curve.values).index(curve.values.index(max(curve.values)))]
        assert top[1] == highest
    places = [tick.place for tick in (*drawn.y_ticks, *drawn.x_ticks)]
    assert all(-0.001 <= place <= 100.001 for place in places)
    assert len(drawn.table) == len(drawn.places)


def test_a_rounding_below_a_bound_takes_no_room() -> None:
    tiny = Series("kl", (1, 2), (1e-8, -2e-8))
    drawn = draw(Figure("kl", "KL", (tiny,), bounds=(0.0, 1e-3)))
    assert [tick.text for tick in drawn.y_ticks] == ["0", "0.00025", "0.0005", "0.00075", "0.001"]
    assert drawn.curves[0].path == "M0 1000L1000 1000"
    real = draw(Figure("kl", "KL", (Series("kl", (1, 2), (0.02, -0.01)),), bounds=(0.0, 1e-3)))
    assert real.y_ticks[0].text == "-0.01"
