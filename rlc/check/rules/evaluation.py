"""Rules on evaluations."""

from __future__ import annotations

from rlc.check.rules.base import View, rule
from rlc.lang.diagnostics import Label


@rule("metrics", "samples")
def _enough_samples(view: View) -> None:
    """pass@k needs k episodes of a task."""
    for index, metric in enumerate(view.metrics):
        if metric.k is not None and metric.k > view.samples:
            label = Label(view.at("samples"), f"{view.samples} of each task are played")
            message = f"`{metric.name}({metric.k})` needs {metric.k} episodes of each task"
            advice = f"`samples = {metric.k}`, or a smaller k"
            view.error("RL0316", f"metrics.{index}.k", message, advice, label)


@rule("every", "first", "after")
def _during_a_stage(view: View) -> None:
    """``every`` and ``first`` count the steps of a stage."""
    if view.after is not None:
        return
    for name, given in (("every", view.every is not None), ("first", view.first)):
        if given:
            message = f"`{name}` counts the steps of a stage, and this evaluates a model"
            view.error("RL0317", name, message, "`model = main` evaluates the stage `main`")
