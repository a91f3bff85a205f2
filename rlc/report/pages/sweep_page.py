"""One self-contained page about a sweep: its trials side by side, and the best of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from attrs import frozen

from rlc.plan import Change, shown_value, value_changes, values_text
from rlc.report.charts.drawing import COLORS, Chart, chart
from rlc.report.charts.parallel import Parallel, parallel
from rlc.report.charts.series import Series
from rlc.report.formatting import moment, number
from rlc.report.pages.rendering import render
from rlc.report.run_files import read_plan
from rlc.runtime import Record, RunError, command, is_number, read_metrics
from rlc.sweeps import ConfigurationResult, SweepInfo, TrialRecord, read_sweep

_CURVES = 2 * COLORS  # of a chart: the best configurations


@frozen
class ConfigurationRow:
    """A configuration in the table, with what its trials came to."""

    number: int
    values: tuple[str, ...]
    mean: str
    margin: str
    trials: tuple[TrialRecord, ...]


@frozen
class Difference:
    """A value of the best trial that is not the recipe's own."""

    path: str
    before: str
    after: str
    origin: str


@frozen
class SweepPage:
    """Everything that the template shows."""

    sweep: SweepInfo
    written: str
    ended: int
    rows: tuple[ConfigurationRow, ...]
    charts: tuple[Chart, ...]
    parallel: Parallel | None
    best: ConfigurationRow | None
    command: str
    differences: tuple[Difference, ...]
    failed: tuple[TrialRecord, ...]


def sweep_html(path: Path, live: bool = False) -> str:
    """Return the page about the sweep in a folder. Raise RunError if it is not that of a sweep."""
    return render(build(read_sweep(path)), "sweep.html.j2", live)


def build(sweep: SweepInfo) -> SweepPage:
    """Compute what the page shows."""
    results = sweep.results
    rows = tuple(_row(sweep, result) for result in results)
    best, differences, alone = sweep.best, list[Difference](), ""
    if best is not None:
        trial = best.trials[0].trial
        run = command("run", Path(sweep.recipe))
        alone = f"{run} {trial.options} --seed {trial.seed}"
        differences = list(_differences(sweep, best))
    return SweepPage(
        sweep=sweep,
        written=moment(time.time()),
        ended=sum(record.ended for record in sweep.trials),
        rows=rows,
        charts=tuple(_charts(sweep, results)),
        parallel=parallel(sweep.plan, results),
        best=rows[0] if best is not None else None,
        command=alone,
        differences=tuple(differences),
        failed=tuple(sweep.failed),
    )


def _row(sweep: SweepInfo, result: ConfigurationResult) -> ConfigurationRow:
    return ConfigurationRow(
        result.number,
        tuple(result.configuration[axis.path] for axis in sweep.plan.axes),
        "" if result.mean is None else number(result.mean),
        "" if result.margin is None else number(result.margin),
        result.trials,
    )


def _charts(sweep: SweepInfo, results: Sequence[ConfigurationResult]) -> Iterator[Chart]:
    """The metric on the way, and what the stage itself is watched by, a curve a configuration."""
    metric, of = sweep.plan.metric, sweep.plan.of
    shown = results[:_CURVES]
    records = {
        result.number: [read_metrics(sweep.folder_of(record.trial)) for record in result.trials]
        for result in shown
    }
    note = f"the best {len(shown)} of {len(results)}" if len(results) > len(shown) else ""
    seeds = "mean over the seeds" if sweep.plan.seeds > 1 else ""
    note = "; ".join(filter(None, (note, seeds)))
    watched = [(metric.stage, metric.key, metric.name)]
    watched += [(of, key, f"{of}: {title}") for key, title in _OF_STAGES]
    for stage, key, title in watched:
        curves = [
            _mean(values_text(result.configuration), records[result.number], stage, key)
            for result in shown
        ]
        drawn = chart(f"{stage}-{key.replace('/', '-')}", title, curves, note=note)
        if drawn is not None and not (key == metric.key and stage == of and title != metric.name):
            yield drawn


_OF_STAGES = (("reward/mean", "reward"), ("loss/mean", "loss"), ("entropy/mean", "entropy"))


def _mean(name: str, runs: Sequence[Sequence[Record]], stage: str, key: str) -> Series | None:
    """The mean over runs of a metric, at the steps at which any has it."""
    by_step: dict[int, list[float]] = {}
    for records in runs:
        for record in records:
            if record["stage"] == stage and is_number(record.get(key)):
                by_step.setdefault(int(record["step"]), []).append(float(record[key]))
    if not by_step:
        return None
    steps = tuple(sorted(by_step))
    return Series(name, steps, tuple(fmean(by_step[step]) for step in steps))


def _differences(sweep: SweepInfo, best: ConfigurationResult) -> Iterator[Difference]:
    """How the best trial differs from the recipe as it is written."""
    if sweep.base is None:
        return
    try:
        plan = read_plan(sweep.folder_of(best.trials[0].trial))
    except RunError:
        return
    names = {stage.name for stage in plan.stages}
    for change in value_changes(sweep.base, plan):
        head = change.path.partition(".")[0]
        if head in names or head == "seed":
            yield Difference(change.path, *_sides(change), change.after.origin)


def _sides(change: Change) -> tuple[str, str]:
    name = change.path.rpartition(".")[2]
    before, after = (
        shown_value(name, side.value) if side.exists else "—"
        for side in (change.before, change.after)
    )
    return before, after
