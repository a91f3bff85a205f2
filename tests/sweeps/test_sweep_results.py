"""What came out of a sweep: means, intervals, the order of configurations."""

from __future__ import annotations

import pytest
from attrs import evolve
from sweep_support import METRIC, PLAN

from rlc.plan.sweeps import Trial
from rlc.sweeps.journal import best_of, margin, ranked
from rlc.sweeps.trials import TrialRecord, TrialState


def record(
    number: int, seed: int, value: float | None, state: TrialState = "finished"
) -> TrialRecord:
    return TrialRecord(Trial(number, {"rate": str(number)}, seed), state, "", value)


def test_the_interval_is_students() -> None:
    assert margin([0.5]) is None
    assert margin([0.25, 0.25, 0.25]) == 0.0
    # By hand: the mean of 1, 2, 3 has the standard error 1/√3, and t(0.975, 2) = 4.303.
    assert margin([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5, rel=1e-3)


@pytest.mark.parametrize(("count", "t"), [(12, 2.201), (21, 2.086), (31, 2.042), (101, 1.984)])
def test_the_quantiles_are_those_of_tables(count: int, t: float) -> None:
    values = [float(i) for i in range(count)]
    mean = sum(values) / count
    error = (sum((v - mean) ** 2 for v in values) / (count - 1) / count) ** 0.5
    found = margin(values)
    assert found is not None
    assert found / error == pytest.approx(t, abs=1.5e-3)


def test_the_best_is_the_best_of_the_complete_ones() -> None:
    records = [
        *(record(1, seed, 0.5) for seed in (1, 2)),
        *(record(2, seed, 0.75) for seed in (1, 2)),
        record(3, 1, 0.9),
        record(3, 2, None, "failed"),  # one seed alone may be luck
        record(4, 1, None, "pruned"),
    ]
    results = ranked(PLAN, records)
    assert [result.number for result in results] == [2, 1, 3, 4]
    best = best_of(results)
    assert best is not None
    assert (best.mean, best.margin) == (0.75, 0.0)
    less = evolve(PLAN, metric=evolve(METRIC, more_is_better=False))
    assert [result.number for result in ranked(less, records)][:2] == [1, 2]


def test_there_is_no_best_without_a_value() -> None:
    assert best_of(ranked(PLAN, [record(1, 1, None, "failed")])) is None
    assert best_of([]) is None
