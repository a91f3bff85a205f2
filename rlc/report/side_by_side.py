"""One page about several runs: their curves in the same charts, and what differs between them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import define, evolve, field, frozen

from rlc.plan import ComparedValue, differing_paths, plan_values, shown_value
from rlc.report.drawing import Chart, Figure, Series, draw
from rlc.report.figures import Axes, axes_of, stage_figures
from rlc.report.findings import Finding, findings
from rlc.report.formatting import moment, number, render
from rlc.report.measures import Measure, Spend, measures, spend
from rlc.report.run_files import RunFiles, read_files
from rlc.report.timing import environment_shares, step_times, totals
from rlc.runtime import Failure, RunError, RunInfo, read_failures, read_run, verdict
from rlc.sweeps import runs_in

LETTERS = "ABCDEFGHIJKL"
MOST = len(LETTERS)  # on a page: more lines in a chart cannot be told apart


@frozen
class ComparedRun:
    """A run of a comparison. ``place`` is its index among the colours and dashes of the page."""

    letter: str
    place: int
    name: str
    info: RunInfo
    files: RunFiles


@frozen
class Unread:
    """A run that cannot be shown, and why."""

    path: Path
    cause: str


def folders_of(roots: Iterable[Path]) -> list[Path]:
    """Return the folders of runs, each once: those that are named, and those in folders and sweeps,
    the newest first. Raise RunError if there is none in one of them."""
    found: dict[Path, Path] = {}
    for root in roots:
        if not (runs := runs_in(root)):
            advice = "`rlc runs FOLDER` lists those that there are"
            raise RunError(f"there are no runs in {root}", advice)
        for run in runs:
            found.setdefault(run.path.resolve(), run.path)
    return list(found.values())


def read_runs(paths: Sequence[Path]) -> tuple[list[ComparedRun], list[Unread]]:
    """Read runs to compare, and say which cannot be read. Raise RunError if they are too many."""
    if len(paths) > MOST:
        advice = "name those that matter: `rlc runs` says what differs between them"
        raise RunError(f"{len(paths)} runs are too many for one page, which shows {MOST}", advice)
    names = [path.resolve().name for path in paths]
    found, unread = list[ComparedRun](), list[Unread]()
    for place, (path, name) in enumerate(zip(paths, names, strict=True)):
        shown = name if names.count(name) == 1 else str(path)
        try:
            files = read_files(path)
        except RunError as error:
            unread.append(Unread(path, error.message))
        else:
            found.append(ComparedRun(LETTERS[place], place, shown, read_run(path), files))
    return found, unread


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


def overlays(runs: Sequence[ComparedRun]) -> list[Overlay]:
    """Draw what was measured in any of the runs, stage by stage. Stages are the same if they have
    the same name and kind, metrics if they are the same curve of the same figure."""
    stages: dict[tuple[str, str], dict[tuple[str, str], _Metric]] = {}
    for run in runs:
        for group in stage_figures(run.files):
            metrics = stages.setdefault((group.stage, group.kind), {})
            for figure in group.figures:
                for curve in figure.curves:
                    new = _Metric(figure, curve.name)
                    metric = metrics.setdefault((figure.id, curve.name), new)
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


def _has(run: ComparedRun, stage: str) -> bool:
    return any(mine.name == stage for mine in run.files.plan.stages)


def _chart(
    metric: _Metric, name: str, alone: bool, runs: Sequence[ComparedRun], stage: str
) -> Chart:
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


ABSENT = "—"


@frozen
class Cell:
    """A value of one run. ``origin``: where it came from; ``same``: the first run has it, too."""

    text: str
    origin: str = ""
    same: bool = False


@frozen
class DifferingValue:
    """A value that is not the same in all runs, with a cell for each."""

    path: str
    cells: tuple[Cell, ...]


@frozen
class RunResult:
    """A measure of a run. ``against`` is the difference of the last steps from those of the first
    run that has any; ``leads``: some runs end worse, and none better."""

    run: ComparedRun
    measure: Measure
    against: str
    better: bool | None
    leads: bool


@frozen
class Results:
    """A measure of the runs that have it. ``label``: how many steps the first and the last ones
    are, where that is the same in all; ``base`` is the letter of the run that the others are
    compared with; ``missing`` has the letters of the other runs by why they have no such number."""

    title: str
    label: str
    base: str
    lines: tuple[RunResult, ...]
    missing: Mapping[str, Sequence[str]]

    @property
    def alone(self) -> bool:
        """Whether only one run has it."""
        return len(self.lines) == 1


@frozen
class RunUsage:
    """The tokens and the time of a run. ``seconds`` are those of its steps, ``waiting`` is the
    share of them in which nothing was in progress."""

    run: ComparedRun
    spend: Spend
    sampled: int
    trained: int
    seconds: float
    waiting: float


@frozen
class SharedFinding:
    """A warning, and the letters of the runs that it is about."""

    finding: Finding
    letters: tuple[str, ...]


def differences(runs: Sequence[ComparedRun]) -> Iterator[DifferingValue]:
    """Yield the values that are not the same in all runs: the recipe, the version of rlc, and those
    of the plans by the names of `rlc diff`."""
    facts = {
        "recipe": [run.info.recipe for run in runs],
        "rlc": [run.info.version or "unknown" for run in runs],
    }
    for name, texts in facts.items():
        if len(set(texts)) > 1:
            yield DifferingValue(name, tuple(Cell(text, same=text == texts[0]) for text in texts))
    plans = [plan_values(run.files.plan) for run in runs]
    for path, inner in _collapsed(differing_paths(plans), plans).items():
        sides = [plan.get(inner[0]) for plan in plans]
        yield DifferingValue(path, tuple(_cell(side, sides[0], inner) for side in sides))


def _collapsed(
    paths: Sequence[str], plans: Sequence[Mapping[str, ComparedValue]]
) -> dict[str, tuple[str, ...]]:
    """Group paths by themselves; but those in a part that some plans do not have at all, such as
    an environment, by the path of that part."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        parts = path.split(".")
        heads = (".".join(parts[:size]) for size in range(2, len(parts)))
        missing = (
            head
            for head in heads
            if not all(any(other.startswith(f"{head}.") for other in plan) for plan in plans)
        )
        head = next(missing, path)
        found[head] = (*found.get(head, ()), path)
    return found


def _cell(side: ComparedValue | None, first: ComparedValue | None, inner: Sequence[str]) -> Cell:
    if side is None:
        return Cell(ABSENT, same=first is None)
    text = shown_value(inner[0].rpartition(".")[2], side.value)
    if "." not in inner[0] and inner[0] != "seed":
        text += " stage"
    if len(inner) > 1:
        text += f", and {len(inner) - 1} values more"
    return Cell(text, side.origin, first is not None and side.is_same(first))


def results(runs: Sequence[ComparedRun]) -> Iterator[Results]:
    """Yield the results of the runs by each measure that any of them has."""
    found: dict[str, dict[str, Measure]] = {}
    for run in runs:
        for stage in run.files.plan.stages:
            for one in measures(run.files, stage):
                found.setdefault(f"{one.title} ({one.kind})", {})[run.letter] = one
    known = set[tuple[object, ...]]()
    for title, mine in found.items():
        curves = tuple((letter, one.curve.values) for letter, one in mine.items())
        if curves in known:
            continue
        known.add(curves)
        missing: dict[str, list[str]] = {}
        of = next(iter(mine.values())).stage
        for run in runs:
            if run.letter not in mine:
                why = "not measured" if _has(run, of) else f"no stage {of}"
                missing.setdefault(why, []).append(run.letter)
        shown = [run for run in runs if run.letter in mine]
        labels = {one.label for one in mine.values()}
        yield Results(
            title.rpartition(" (")[0],
            labels.pop() if len(labels) == 1 else "first steps → last",
            shown[0].letter,
            tuple(_result(run, mine[run.letter], list(mine.values())) for run in shown),
            missing,
        )


def _result(run: ComparedRun, one: Measure, every: Sequence[Measure]) -> RunResult:
    base, others = every[0], [one.better(one.last, other.last) for other in every]
    leads = True in others and False not in others
    if one is base:
        return RunResult(run, one, "", None, leads)
    difference = one.last - base.last
    against = f"{'+' if difference >= 0 else '−'}{number(abs(difference), 3)}"
    return RunResult(run, one, against, others[0], leads)


def used(run: ComparedRun) -> RunUsage:
    """Return the tokens and the time of a run."""
    files = run.files
    kinds = ("sampled", "trained")
    sampled, trained = (sum(row.tokens[kind] for row in files.spent) for kind in kinds)
    shares = environment_shares(files.metrics)
    seconds = totals(step_times(files.timeline, files.evaluations, shares))
    total = sum(seconds.values())
    waiting = seconds.get("waiting", 0.0) / total if total else 0.0
    return RunUsage(run, spend(files), sampled, trained, total, waiting)


def expectations(runs: Sequence[ComparedRun]) -> Iterator[DifferingValue]:
    """Yield the expectations of the recipes, with the verdict on each in each run."""
    texts = dict.fromkeys(one.text for run in runs for one in run.info.expectations)
    for text in texts:
        known = [{one.text: one for one in run.info.expectations}.get(text) for run in runs]
        cells = [Cell(verdict(one), one.said) if one else Cell(ABSENT) for one in known]
        yield DifferingValue(text, tuple(cells))


def shared_findings(runs: Sequence[ComparedRun]) -> list[SharedFinding]:
    """Return the warnings about the runs, each once."""
    found: dict[Finding, list[str]] = {}
    for run in runs:
        for finding in findings(run.files):
            found.setdefault(finding, []).append(run.letter)
    return [SharedFinding(finding, tuple(letters)) for finding, letters in found.items()]


@frozen
class RunsPage:
    """What the template shows."""

    runs: tuple[ComparedRun, ...]
    unread: tuple[Unread, ...]
    written: str
    differences: tuple[DifferingValue, ...]
    results: tuple[Results, ...]
    overlays: tuple[Overlay, ...]
    axes: Mapping[str, Axes]
    used: tuple[RunUsage, ...]
    expectations: tuple[DifferingValue, ...]
    findings: tuple[SharedFinding, ...]
    causes: tuple[tuple[ComparedRun, Failure], ...]

    @property
    def free(self) -> bool:
        return all(one.spend.free for one in self.used)


def runs_html(paths: Sequence[Path], live: bool = False) -> str:
    """Return the page about the runs in these folders. Raise RunError if they are more than 12; a
    ``live`` page shows the first ones and names the others."""
    runs, unread = read_runs(paths[:MOST] if live else paths)
    more = [Unread(path, f"a page shows {MOST} runs") for path in paths[MOST:]]
    return render(build(runs, [*unread, *more]), "runs.html.j2", live)


def build(runs: Sequence[ComparedRun], unread: Sequence[Unread]) -> RunsPage:
    """Compute what the page shows."""
    return RunsPage(
        runs=tuple(runs),
        unread=tuple(unread),
        written=moment(time.time()),
        differences=tuple(differences(runs)),
        results=tuple(results(runs)),
        overlays=tuple(overlays(runs)),
        axes={run.letter: axes_of(run.files) for run in runs},
        used=tuple(map(used, runs)),
        expectations=tuple(expectations(runs)),
        findings=tuple(shared_findings(runs)),
        causes=tuple((run, failure) for run in runs for failure in read_failures(run.info.path)),
    )
