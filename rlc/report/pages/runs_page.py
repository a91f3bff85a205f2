"""One self-contained page about several runs, side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from rlc.report.charts.axes import Axes, axes_of
from rlc.report.formatting import moment
from rlc.report.pages.rendering import render
from rlc.report.side_by_side import (
    MOST,
    ComparedRun,
    DifferingValue,
    Overlay,
    Results,
    RunUsage,
    SharedFinding,
    Unread,
    differences,
    expectations,
    overlays,
    read_runs,
    results,
    shared_findings,
    used,
)
from rlc.runtime import Failure, read_failures


@frozen
class RunsPage:
    """Everything that the template shows."""

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
    """Return the page about the runs in these folders, 12 of them at the most. Raise RunError if
    they are more, or none of them can be read; a ``live`` page, to which runs come while it is
    looked at, shows the first ones and says which it does not."""
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
