"""The curves of several runs in the same charts: a chart for each metric, a line for each run."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field, frozen

from rlc.report.charts.drawing import Chart, Figure, draw
from rlc.report.charts.figures import stage_figures
from rlc.report.charts.series import Series
from rlc.report.side_by_side.runs import Compared


@frozen
class Overlay:
    """The charts of a stage. ``without`` are the letters of the runs that have no such stage."""

    stage: str
    kind: str
    charts: tuple[Chart, ...]
    without: tuple[str, ...]


@define
class _Metric:
    """One curve of a figure, in each run that has it."""

    figure: Figure
    name: str
    alone: bool = True  # no other curve is in the figure, in any run
    curves: dict[str, Series] = field(factory=dict)


def overlays(runs: Sequence[Compared]) -> list[Overlay]:
    """Draw what was measured in any of the runs, stage by stage. Stages are the same if they have
    the same name and kind, metrics if they are the same curve of the same figure."""
    stages: dict[tuple[str, str], dict[tuple[str, str], _Metric]] = {}
    for run in runs:
        for group in stage_figures(run.files):
            metrics = stages.setdefault((group.stage, group.kind), {})
            for figure in group.figures:
                for curve in figure.curves:
                    metric = metrics.setdefault(
                        (figure.id, curve.name), _Metric(figure, curve.name)
                    )
                    metric.alone &= len(figure.curves) == 1
                    metric.curves[run.letter] = curve
    groups = []
    for (stage, kind), metrics in stages.items():
        figures = [figure for figure, _ in metrics]
        charts = tuple(
            _chart(metric, f"{of}-{place}", figures.count(of) == 1 and metric.alone, runs, stage)
            for place, ((of, _), metric) in enumerate(metrics.items())
        )
        missing = [run.letter for run in runs if not _has(run, stage)]
        groups.append(Overlay(stage, kind, charts, tuple(missing)))
    return groups


def _has(run: Compared, stage: str) -> bool:
    return any(mine.name == stage for mine in run.files.plan.stages)


def _chart(metric: _Metric, name: str, alone: bool, runs: Sequence[Compared], stage: str) -> Chart:
    shown = [run for run in runs if run.letter in metric.curves]
    missing = [run.letter for run in runs if run not in shown and _has(run, stage)]
    notes = [metric.figure.note] if metric.figure.note else []
    if missing:
        notes.append(f"not measured in {', '.join(missing)}")
    figure = evolve(
        metric.figure,
        id=name,
        title=metric.figure.title if alone else f"{metric.figure.title}: {metric.name}",
        note="; ".join(notes),
        curves=tuple(
            evolve(metric.curves[run.letter], name=f"{run.letter} {run.name}", spread=None)
            for run in shown
        ),
    )
    return draw(figure, [run.place for run in shown], [run.letter for run in shown])
