"""One self-contained page about a run: everything is in it, nothing is fetched."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from rlc.catalog.declarations import STAGES
from rlc.catalog.saved_weights import model_of
from rlc.explanation.formulas.stages import formula_sections
from rlc.explanation.values import Row, value_rows
from rlc.lang.render import Paint
from rlc.plan.codec import plan_hash
from rlc.plan.records import EvalPlan, Plan, StagePlan, TrainPlan, kind_of
from rlc.report.charts.gantt import Bar, Gantt, bars, gantt
from rlc.report.charts.graph_drawing import Diagram, diagrams
from rlc.report.charts.stage_charts import StageCharts, stage_charts
from rlc.report.episodes import (
    Episode,
    EpisodeFilter,
    read_episodes,
    representatives,
)
from rlc.report.findings import Finding, findings
from rlc.report.formatting import moment, number
from rlc.report.pages.rendering import render
from rlc.report.run_files import RunFiles, read_files
from rlc.report.spend import Spend, spend
from rlc.report.timing import environment_shares, step_times, totals
from rlc.runtime.failures import Failure, read_failures
from rlc.runtime.journal.history import Record, is_number
from rlc.runtime.journal.metrics import evaluation_results, measure
from rlc.runtime.journal.runs import RunInfo, read_run
from rlc.runtime.summary import window_label, window_mean

_EPISODES = 24  # that a page shows


@frozen
class Change:
    """A measure of a stage, from its first steps to its last; ``label`` says how many these are."""

    name: str
    first: str
    last: str
    better: bool | None
    label: str


@frozen
class StageLine:
    name: str
    kind: str
    done: int
    planned: int | None
    changes: tuple[Change, ...]


@frozen
class PlanPart:
    """One stage of the plan: its values, its formulas by title (each line with the remark beside
    it), its graph."""

    stage: str
    values: tuple[Row, ...]
    formulas: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    diagram: Diagram


@frozen
class TimePart:
    lane: str
    seconds: float
    share: float


@frozen
class Page:
    """Everything that the template shows."""

    run: RunInfo
    model: str | None  # what the run has left
    recipe: str
    hash: str
    seed: int
    written: str
    stages: tuple[StageLine, ...]
    groups: tuple[StageCharts, ...]
    times: tuple[TimePart, ...]
    bars: tuple[Bar, ...]
    gantt: Gantt | None
    spend: Spend
    plan: tuple[PlanPart, ...]
    findings: tuple[Finding, ...]
    causes: tuple[Failure, ...]
    episodes: tuple[Episode, ...]
    metrics: tuple[tuple[str, ...], ...]  # stage, name, first, last, lowest, highest


def report_html(path: Path) -> str:
    """Return the page about the run in a folder. Raise RunError if it is not a run's folder."""
    files = read_files(path)
    return render(build(files, read_run(path), episodes(files)))


def episodes(files: RunFiles) -> list[Episode]:
    """Choose the most representative episodes of the last step of each stage."""
    found: list[Episode] = []
    for stage in files.plan.stages:
        if records := files.of_stage(stage.name):
            wanted = EpisodeFilter(stage=stage.name, step=int(records[-1]["step"]))
            found.extend(representatives(list(read_episodes(files.path, wanted))))
    return found[:_EPISODES]


def build(files: RunFiles, run: RunInfo, chosen: Sequence[Episode]) -> Page:
    """Compute what the page shows."""
    plan = files.plan
    shares = environment_shares(files.metrics)
    times = step_times(files.timeline, files.evaluations, shares)
    seconds = totals(times)
    total = sum(seconds.values()) or 1.0
    return Page(
        run=run,
        model=model_of(str(files.path)),
        recipe=plan.recipe,
        hash=plan_hash(plan)[:12],
        seed=plan.seed,
        written=moment(time.time()),
        stages=tuple(_stage_line(stage, files.of_stage(stage.name)) for stage in plan.stages),
        groups=tuple(stage_charts(files)),
        times=tuple(TimePart(lane, spent, spent / total) for lane, spent in seconds.items()),
        bars=tuple(bars(times)),
        gantt=gantt(files.timeline, files.evaluations),
        spend=spend(files),
        plan=tuple(_plan_parts(plan)),
        findings=tuple(findings(files)),
        causes=tuple(read_failures(files.path)),
        episodes=tuple(chosen),
        metrics=tuple(_metric_lines(files)),
    )


def _stage_line(stage: StagePlan, records: Sequence[Record]) -> StageLine:
    if isinstance(stage, EvalPlan):
        found = [evaluation_results(record, stage.name) for record in records]
        last = found[-1].items() if found else ()
        label = "first evaluation → last" if len(found) > 1 else "one evaluation"
        results = [
            _change(name, found[0][name], value, label) for name, value in last if name in found[0]
        ]
        return StageLine(stage.name, "eval", len(records), None, tuple(results))
    kind = kind_of(stage)
    rises = STAGES[kind].rises
    if isinstance(stage, TrainPlan):
        watched = {env.name: f"reward/{env.name}" for env in stage.envs}
    else:
        watched = {measure(stage).partition("/")[0]: measure(stage)}
    changes = []
    for name, key in watched.items():
        values = [float(record[key]) for record in records if is_number(record.get(key))]
        first, last_mean = window_mean(values, last=False), window_mean(values, last=True)
        if first is not None and last_mean is not None:
            label = window_label(len(values))
            changes.append(_change(name, first, last_mean, label, rises))
    return StageLine(stage.name, kind, len(records), stage.steps, tuple(changes))


def _change(
    name: str, first: float, last: float, label: str, more_is_better: bool = True
) -> Change:
    better = None if first == last else (last > first) == more_is_better
    return Change(name, f"{first:.3f}", f"{last:.3f}", better, label)


def _plan_parts(plan: Plan) -> Iterator[PlanPart]:
    for stage, diagram in zip(plan.stages, diagrams(plan), strict=True):
        formulas = tuple(
            (title, tuple(_with_remark(line) for line in lines))
            for title, lines in formula_sections(stage, Paint())
        )
        yield PlanPart(stage.name, tuple(value_rows(plan, stage)), formulas, diagram)


def _with_remark(line: str) -> tuple[str, str]:
    """Split a formula from the remark in a column to its right."""
    formula, _, remark = line.partition("   ")
    return (line, "") if not formula.strip() else (formula, remark.strip())


def _metric_lines(files: RunFiles) -> Iterator[tuple[str, ...]]:
    """Summarise every number that was recorded, drawn or not."""
    for stage in files.plan.stages:
        columns: dict[str, list[float]] = {}
        for record in files.of_stage(stage.name):
            for key, value in record.items():
                if key != "step" and is_number(value):
                    columns.setdefault(key, []).append(float(value))
        for key, values in sorted(columns.items()):
            ends = (values[0], values[-1], min(values), max(values))
            yield stage.name, key, *map(number, ends)
