"""Which trials end early: Optuna's successive halving, rebuilt from the journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlc.plan import SweepPlan
from rlc.sweeps.journal import MetricReport
from rlc.sweeps.search import optuna


class Halving:
    """Decides after each report whether a configuration goes on, by those that came as far before
    it (asynchronous successive halving, arXiv 1810.05934)."""

    def __init__(self, sweep: SweepPlan, reports: Iterable[MetricReport]) -> None:
        package, search = optuna(), sweep.search
        pruner = package.pruners.SuccessiveHalvingPruner(
            min_resource=search.first, reduction_factor=search.eta
        )
        self._study = package.create_study(
            direction="maximize" if sweep.metric.more_is_better else "minimize",
            pruner=pruner,
            sampler=package.samplers.RandomSampler(seed=0),  # which is not asked for anything
        )
        self._trials: dict[int, Any] = {}
        self.ended: set[int] = set()  # the configurations that do not go on
        for report in reports:
            self.goes_on(report)

    def goes_on(self, report: MetricReport) -> bool:
        """Return whether a configuration goes on after a report."""
        if report.number not in self._trials:
            self._trials[report.number] = self._study.ask()
        trial = self._trials[report.number]
        trial.report(report.value, report.step)
        if trial.should_prune():
            self.ended.add(report.number)
        return report.number not in self.ended
