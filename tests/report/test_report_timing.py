"""Where the time went: each moment of a run counts once, for what was going on."""

from __future__ import annotations

import pytest

from rlc.report.run_files import TimeSpan
from rlc.report.timing import (
    MOST_BARS,
    StepTime,
    bars,
    environment_shares,
    gantt,
    step_times,
    totals,
)


def span(kind: str, start: float, end: float, step: int = 1, stage: str = "main") -> TimeSpan:
    return TimeSpan(stage, step, 0, kind, start, end)


SERIAL = [
    span("snapshot", 100, 101),
    span("rollouts", 101, 105),
    span("datums", 105, 105.5),
    span("forward_backward", 105.5, 106),
    span("optim_step", 107, 109),  # a second after the gradient was submitted
]


def test_a_step_after_the_other() -> None:
    (time,) = step_times(SERIAL, [], {("main", 1): 0.25})
    assert time.seconds == pytest.approx(
        {
            "sampling": 3.0,
            "environment": 1.0,
            "training": 2.5,
            "data": 0.5,
            "saving": 1.0,
            "evaluation": 0.0,
            "waiting": 1.0,
        }
    )
    assert time.total == pytest.approx(9.0)


def test_what_overlaps_shares_the_time() -> None:
    spans = [
        span("rollouts", 0, 4, step=1),
        span("rollouts", 4, 8, step=2),
        span("optim_step", 4, 6, step=1),
        span("optim_step", 8, 10, step=2),
    ]
    first, second = step_times(spans, [], {})
    assert first.seconds["sampling"] == pytest.approx(4 + 1)
    assert first.seconds["training"] == pytest.approx(1)
    assert second.seconds["sampling"] == pytest.approx(2)
    assert second.seconds["training"] == pytest.approx(2)
    assert first.total + second.total == pytest.approx(10)


def test_the_time_between_two_runs_counts_for_nothing() -> None:
    later = [span("rollouts", 10_000, 10_002, step=2), span("optim_step", 10_002, 10_003, step=2)]
    first, second = step_times([*SERIAL, *later], [], {})
    assert [first.total, second.total] == pytest.approx([9, 3])
    assert second.seconds["waiting"] == 0


def test_evaluations_have_time_of_their_own() -> None:
    evaluation = span("evaluation", 109, 112, step=1, stage="heldout")
    times = step_times(SERIAL, [evaluation], {})
    assert [(time.stage, time.step) for time in times] == [("main", 1), ("heldout", 1)]
    assert times[1].seconds["evaluation"] == pytest.approx(3)
    assert totals(times)["evaluation"] == pytest.approx(3)


def test_the_share_of_the_environment() -> None:
    records = [
        {"stage": "main", "step": 1, "time/episode/sampling": 3.0, "time/episode/environment": 1.0},
        {"stage": "main", "step": 2, "time/episode/sampling": 0.0},
        {"stage": "main", "step": 3},
    ]
    assert environment_shares(records) == {("main", 1): 0.25}


def test_many_steps_become_few_bars_with_the_same_mean() -> None:
    times = [StepTime("main", step, {"sampling": float(step)}) for step in range(1, 2_001)]
    made = bars(times)
    assert len(made) <= MOST_BARS
    assert made[0].label == "main 1–34"
    assert made[0].total == pytest.approx(17.5)
    assert made[-1].label.endswith("2,000")
    assert max(height for bar in made for _, height in bar.parts) == pytest.approx(100)
    assert bars([]) == []


def test_the_last_steps_lie_on_a_line_of_time() -> None:
    spans = [span("rollouts", step, step + 1, step=step) for step in range(1, 101)]
    drawn = gantt(spans, [])
    assert drawn is not None
    assert drawn.steps == "main, steps 89 to 100"
    ((kind, blocks),) = drawn.rows
    assert kind == "rollouts"
    assert [block.step for block in blocks] == list(range(89, 101))
    assert blocks[0].left == 0
    assert blocks[-1].left + blocks[-1].width == pytest.approx(100, abs=0.01)
    assert gantt([], []) is None
