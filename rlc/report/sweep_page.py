"""One self-contained page about a sweep: its trials side by side, and the best of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from attrs import frozen

from rlc.catalog import watched
from rlc.plan import values_text
from rlc.report.diagrams import ClaimFigure, Parallel, claim_drawing, parallel
from rlc.report.drawing import COLORS, Chart, Series, draw, figure
from rlc.report.formatting import moment, render
from rlc.runtime import Record, command, is_number, read_metrics
from rlc.sweeps import ConfigurationResult, SweepInfo, TrialRecord, read_sweep

_CURVES = 2 * COLORS  # of a chart: the best configurations


@frozen
class SweepPage:
    """What the template shows."""

    sweep: SweepInfo
    written: str
    ended: int
    results: tuple[ConfigurationResult, ...]
    charts: tuple[Chart, ...]
    parallel: Parallel | None
    claims: tuple[ClaimFigure, ...]
    best: ConfigurationResult | None
    command: str
    failed: tuple[TrialRecord, ...]


def sweep_html(path: Path, live: bool = False) -> str:
    """Return the page about the sweep in a folder. Raise RunError if it is not that of a sweep."""
    return render(build(read_sweep(path)), "sweep.html.j2", live)


def build(sweep: SweepInfo) -> SweepPage:
    """Compute what the page shows."""
    results, best, alone = sweep.results, sweep.best, ""
    if best is not None:
        trial = best.trials[0].trial
        alone = f"{command('run', Path(sweep.recipe))} {trial.options} --seed {trial.seed}"
    return SweepPage(
        sweep=sweep,
        written=moment(time.time()),
        ended=sum(record.ended for record in sweep.trials),
        results=tuple(results),
        charts=tuple(_charts(sweep, results)),
        parallel=parallel(sweep.plan, results),
        claims=tuple(map(claim_drawing, sweep.claims)),
        best=best,
        command=alone,
        failed=tuple(sweep.failed),
    )


def _charts(sweep: SweepInfo, results: Sequence[ConfigurationResult]) -> Iterator[Chart]:
    """Draw the metric of the sweep, and those of its stage, with a curve for each configuration."""
    metric, of = sweep.plan.metric, sweep.plan.of
    shown = results[:_CURVES]
    records = {
        result.number: [read_metrics(sweep.folder_of(record.trial)) for record in result.trials]
        for result in shown
    }
    best = f"the best {len(shown)} of {len(results)}" if len(results) > len(shown) else ""
    note = "; ".join(filter(None, (best, "mean over the seeds" * (sweep.plan.seeds > 1))))
    named = [(metric.stage, metric.key, metric.name)]
    stages = sweep.base.trainings if sweep.base is not None else ()
    about = [one for stage in stages if stage.name == of for one in watched(stage)]
    named += [(of, one.key, f"{of}: {one.label}") for one in about]
    named.append((of, "entropy/mean", f"{of}: entropy"))
    for stage, key, title in named:
        curves = [
            _mean(values_text(result.configuration), records[result.number], stage, key)
            for result in shown
        ]
        shown_twice = key == metric.key and stage == of and title != metric.name
        drawn = figure(f"{stage}-{key.replace('/', '-')}", title, curves, note=note)
        if drawn is not None and not shown_twice:
            yield draw(drawn)


def _mean(name: str, runs: Sequence[Sequence[Record]], stage: str, key: str) -> Series | None:
    """Return the mean of a metric over runs, at the steps at which any has it."""
    by_step: dict[int, list[float]] = {}
    for records in runs:
        for record in records:
            if record["stage"] == stage and is_number(record.get(key)):
                by_step.setdefault(int(record["step"]), []).append(float(record[key]))
    if not by_step:
        return None
    steps = tuple(sorted(by_step))
    return Series(name, steps, tuple(fmean(by_step[step]) for step in steps))
