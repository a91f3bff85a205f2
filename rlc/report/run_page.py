"""One self-contained page about a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from rlc.catalog import audited_text, model_of
from rlc.explanation import ValueRow, formula_sections, value_rows
from rlc.lang.render import Paint
from rlc.plan import Plan, StagePlan, is_training, plan_hash
from rlc.report.bill import DiscardedUsage, discarded
from rlc.report.diagrams import Diagram, diagrams
from rlc.report.drawing import Chart, draw
from rlc.report.episodes import (
    ShownEpisode,
    StepComparison,
    StepEpisodes,
    comparisons,
    last_compared,
    representatives,
    typical,
)
from rlc.report.figures import Axes, axes_of, stage_figures
from rlc.report.findings import Finding, findings
from rlc.report.formatting import moment, number, render
from rlc.report.measures import Measure, Spend, distinct, measures, spend
from rlc.report.run_files import RunFiles, read_files
from rlc.report.timing import Bar, Gantt, bars, environment_shares, gantt, step_times, totals
from rlc.runtime import Failure, RunInfo, is_number, read_failures, read_run

_TILES = 4  # of a stage, beside its steps
_EPISODES, _EARLIER_EPISODES = 24, 6  # that a page shows, of the last step and of others


@frozen
class StageLine:
    name: str
    kind: str
    done: int
    planned: int | None
    measures: tuple[Measure, ...]


@frozen
class ChartGroup:
    """The charts of a stage."""

    stage: str
    kind: str
    charts: tuple[Chart, ...]


@frozen
class PlanPart:
    """One stage of the plan: its values, its formulas by title (each line with the remark beside
    it), its graph."""

    stage: str
    values: tuple[ValueRow, ...]
    formulas: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    diagram: Diagram


@frozen
class EpisodeStep:
    """Episodes that were chosen of a step."""

    stage: str
    step: int
    episodes: tuple[ShownEpisode, ...]


@frozen
class RunPage:
    """What the template shows."""

    run: RunInfo
    model: str | None  # what the run has left
    recipe: str
    hash: str
    seed: int
    written: str
    stages: tuple[StageLine, ...]
    groups: tuple[ChartGroup, ...]
    axes: Mapping[str, Axes]  # by the letter of the run, which has none if it is alone
    times: Mapping[str, float]  # seconds by lane
    bars: tuple[Bar, ...]
    gantt: Gantt | None
    spend: Spend
    discarded: tuple[DiscardedUsage, ...]  # none while a run goes on, where it is not counted
    plan: tuple[PlanPart, ...]
    audit: str  # what audits said of the environments as the run began
    findings: tuple[Finding, ...]
    causes: tuple[Failure, ...]
    episodes: tuple[EpisodeStep, ...]
    compared: tuple[StepComparison, ...]
    metrics: tuple[tuple[str, ...], ...]  # stage, name, first, last, lowest, highest


def run_html(path: Path, live: bool = False, found: StepEpisodes | None = None) -> str:
    """Return the page about the run in a folder, whose episodes are read on from those that were
    ``found`` before. Raise RunError if it is not a run's folder."""
    files = read_files(path)
    page = build(files, read_run(path), typical_episodes(files, found))
    if not live:  # it takes all episodes, which a page that follows a run does not read again
        page = evolve(page, discarded=tuple(discarded(files)))
    return render(page, "run.html.j2", live)


def typical_episodes(files: RunFiles, found: StepEpisodes | None = None) -> list[EpisodeStep]:
    """Choose the most representative episodes of the last step of each stage, then of a middle one
    and of the first."""
    found = found or StepEpisodes(files.path)
    chosen = list[tuple[str, int]]()
    for stage in files.plan.stages:
        done = [int(record["step"]) for record in files.of_stage(stage.name)]
        if done:
            chosen += dict.fromkeys(
                (stage.name, step) for step in (done[-1], done[len(done) // 2], done[0])
            )
    last = dict(reversed(chosen))
    steps = []
    for name, step in chosen:
        most = _EPISODES if step == last[name] else _EARLIER_EPISODES
        if mine := representatives(found.of(name, step))[:most]:
            steps.append(EpisodeStep(name, step, tuple(mine)))
    return steps


def _compared(files: RunFiles) -> Iterator[StepComparison]:
    """Yield typical preferences of the last step of each stage that learns from preferences."""
    for stage in files.plan.trainings:
        last = last_compared(files.metrics, stage.name)
        if stage.preference is not None and last is not None:
            yield from typical(comparisons(files.path, stage, last))


def build(files: RunFiles, run: RunInfo, chosen: Sequence[EpisodeStep]) -> RunPage:
    """Compute what the page shows."""
    plan = files.plan
    shares = environment_shares(files.metrics)
    times = step_times(files.timeline, files.evaluations, shares)
    return RunPage(
        run=run,
        model=model_of(str(files.path)),
        recipe=plan.recipe,
        hash=plan_hash(plan)[:12],
        seed=plan.seed,
        written=moment(time.time()),
        stages=tuple(_stage_line(files, stage) for stage in plan.stages),
        groups=tuple(
            ChartGroup(one.stage, one.kind, tuple(map(draw, one.figures)))
            for one in stage_figures(files)
        ),
        axes={"": axes_of(files)},
        times=totals(times),
        bars=tuple(bars(times)),
        gantt=gantt(files.timeline, files.evaluations),
        spend=spend(files),
        discarded=(),
        plan=tuple(_plan_parts(plan)),
        audit=audited_text(files.audit).replace("`", ""),
        findings=tuple(findings(files)),
        causes=tuple(read_failures(files.path)),
        episodes=tuple(chosen),
        compared=tuple(_compared(files)),
        metrics=tuple(_metric_lines(files)),
    )


def _stage_line(files: RunFiles, stage: StagePlan) -> StageLine:
    planned = stage.steps if is_training(stage) else None
    done = len(files.of_stage(stage.name))
    shown = tuple(distinct(measures(files, stage))[:_TILES])
    return StageLine(stage.name, stage.kind, done, planned, shown)


def _plan_parts(plan: Plan) -> Iterator[PlanPart]:
    for stage, diagram in zip(plan.stages, diagrams(plan), strict=True):
        sections = formula_sections(stage, Paint())
        formulas = tuple((title, tuple(map(_with_remark, lines))) for title, lines in sections)
        yield PlanPart(stage.name, tuple(value_rows(plan, stage)), formulas, diagram)


def _with_remark(line: str) -> tuple[str, str]:
    """Split a formula from the remark in a column to its right."""
    formula, _, remark = line.partition("   ")
    return (line, "") if not formula.strip() else (formula, remark.strip())


def _metric_lines(files: RunFiles) -> Iterator[tuple[str, ...]]:
    """Yield stage, name, first, last, lowest and highest value of each metric."""
    for stage in files.plan.stages:
        columns: dict[str, list[float]] = {}
        for record in files.of_stage(stage.name):
            for key, value in record.items():
                if key != "step" and is_number(value):
                    columns.setdefault(key, []).append(float(value))
        for key, values in sorted(columns.items()):
            ends = (values[0], values[-1], min(values), max(values))
            yield stage.name, key, *map(number, ends)
