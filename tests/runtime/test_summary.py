"""How a run shows in a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlc.runtime.summary import (
    EvalSummary,
    StageSummary,
    Summary,
    curve,
    summary_html,
    window_label,
    window_mean,
)


@pytest.mark.parametrize(
    ("count", "first", "last", "label"),
    [
        (1, 0, 0, "one step"),
        (2, 0, 1, "first step → last"),
        (3, 0, 2, "first step → last"),
        (5, 0.5, 3.5, "first two steps → last two"),
        (9, 1.5, 6.5, "first four steps → last four"),
        (10, 2, 7, "first five steps → last five"),
        (50, 2, 47, "first five steps → last five"),
    ],
)
def test_no_step_is_among_the_first_and_the_last(
    count: int, first: float, last: float, label: str
) -> None:
    values = [float(number) for number in range(count)]
    assert (window_mean(values, False), window_mean(values, True)) == (first, last)
    assert window_label(count) == label
    assert window_mean([], True) is None


def test_a_curve_goes_from_left_to_right_and_up() -> None:
    svg = curve([0.0, 0.5, 1.0])
    assert 'points="0.0,31.0 120.0,16.0 240.0,1.0"' in svg
    assert curve([1.0]) == curve([1.0, float("nan")]) == ""
    assert "31.0" in curve([2.0, 2.0])  # a flat one lies at the bottom


def test_a_summary_shows_stages_and_evaluations() -> None:
    state = ("local://x/weights/y", "runs/<y>@main:2")
    stage = StageSummary("main", 10, 2, 2, "reward", [0.1, 0.9], 3.0, *state)
    held = EvalSummary("heldout", 10, {"pass@1": 0.5})
    html = summary_html(Summary(Path("runs/x"), "finished", [stage], [held], 1.5))
    for part in ("finished", "$1.50 spent", "2 of 10", "heldout after step 10: pass@1 0.500"):
        assert part in html
    assert "&lt;y&gt;" in html
