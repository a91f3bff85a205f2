"""The metric of a trial, as the journal of its run has it."""

from __future__ import annotations

from rlc.plan import MeasurePlan, Plan
from rlc.runtime import Journal, window_mean


def values_on_the_way(journal: Journal, metric: MeasurePlan) -> list[tuple[int, float]]:
    """Return the metric after each step that has it."""
    return [
        (stored.step, float(stored.metrics[metric.key]))
        for stored in journal.steps(metric.stage)
        if metric.key in stored.metrics
    ]


def value_of(journal: Journal, metric: MeasurePlan, plan: Plan, of: str) -> float | None:
    """Return what a finished trial is compared by: the evaluation after its last step, or the mean
    of its own measure over its last steps (:func:`rlc.runtime.summary.window_size`); None if it was
    not measured."""
    found = values_on_the_way(journal, metric)
    if metric.stage == of:
        return window_mean([value for _, value in found], last=True)
    (steps,) = (s.steps for s in plan.trainings if s.name == of)
    return dict(found).get(steps)
