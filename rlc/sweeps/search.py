"""Which configurations are tried, and which of them end early: Optuna's samplers and pruner.

Each proposal has its own sampler, seeded by its number, that learns from earlier proposals; the
pruner reads all reports of the journal. So a resumed sweep proposes and prunes the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from rlc.compile import number_text
from rlc.errors import Error
from rlc.plan import AxisPlan, Configuration, SweepPlan
from rlc.seeds import derive_seed
from rlc.sweeps.journal import MetricReport

_TRIES = 200  # proposals that may have been tried before, one after the other


class NoOptunaError(Error):
    """The package that samples configurations is not installed."""


@frozen
class Proposal:
    """A configuration that was proposed; ``value`` is None while its trials run."""

    configuration: Configuration
    value: float | None


def optuna() -> Any:
    """Return the package, with warnings only. Raise NoOptunaError if it is not installed."""
    try:
        import optuna as package
    except ImportError as error:
        message = "a search that samples configurations needs optuna"
        raise NoOptunaError(message, "pip install 'rlc[sweep]', or `search = grid()`") from error
    package.logging.set_verbosity(package.logging.WARNING)
    return package


def propose(
    sweep: SweepPlan, seed: int, number: int, before: Sequence[Proposal]
) -> Configuration | None:
    """Return the configuration after those ``before``; None if all that are sampled were tried."""
    package, learns = optuna(), sweep.search.learns
    axes = {axis.path: _distribution(package, axis) for axis in sweep.axes}
    direction = "maximize" if sweep.metric.more_is_better else "minimize"
    for attempt in range(_TRIES):
        stream = derive_seed(seed, "sweep", sweep.name, number, attempt) % 2**32
        if learns and attempt < _TRIES // 2:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", package.exceptions.ExperimentalWarning)
                # Running trials count as bad, so that trials side by side are not all the same.
                sampler = package.samplers.TPESampler(seed=stream, constant_liar=True)
        else:  # at random too after so many repeated proposals: there may be little else left
            sampler = package.samplers.RandomSampler(seed=stream)
        study = package.create_study(sampler=sampler, direction=direction)
        if learns:
            study.add_trials([_known_trial(package, axes, sweep.axes, tried) for tried in before])
        sampled = study.ask(axes).params
        found = {axis.path: _written(axis, sampled[axis.path]) for axis in sweep.axes}
        if all(found != tried.configuration for tried in before):
            return found
    return None


def _distribution(package: Any, axis: AxisPlan) -> Any:
    if axis.range is None:
        return package.distributions.CategoricalDistribution(axis.values)
    span, log = axis.range, axis.range.scale == "log"
    if span.whole:
        step, low = int(span.step or 1), int(span.low)
        high = low + (int(span.high) - low) // step * step  # the last that it can reach
        return package.distributions.IntDistribution(low, high, step=step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # steps that do not reach the upper end
        return package.distributions.FloatDistribution(span.low, span.high, log=log, step=span.step)


def _known_trial(package: Any, axes: Any, plans: Sequence[AxisPlan], tried: Proposal) -> Any:
    params = {
        plan.path: tried.configuration[plan.path]
        if plan.range is None
        else (int if plan.range.whole else float)(tried.configuration[plan.path])
        for plan in plans
    }
    trial = package.trial
    end = {"value": tried.value} if tried.value is not None else {"state": trial.TrialState.RUNNING}
    return trial.create_trial(params=params, distributions=axes, **end)


def _written(axis: AxisPlan, value: Any) -> str:
    """Return a value as a recipe writes it; numbers sampled from a range to four places."""
    if axis.range is None:
        return str(value)
    if not axis.range.whole:
        places = 4 if axis.range.step is None else 12
        value = min(max(float(f"{value:.{places}g}"), axis.range.low), axis.range.high)
    return number_text(value, axis.range.whole)


class Halving:
    """Decides which configurations continue: successive halving (arXiv 1810.05934), by Optuna."""

    def __init__(self, sweep: SweepPlan, reports: Iterable[MetricReport]) -> None:
        package, search = optuna(), sweep.search
        pruner = package.pruners.SuccessiveHalvingPruner(
            min_resource=search.first, reduction_factor=search.eta
        )
        self._study = package.create_study(
            direction="maximize" if sweep.metric.more_is_better else "minimize",
            pruner=pruner,
            sampler=package.samplers.RandomSampler(seed=0),  # never used
        )
        self._trials: dict[int, Any] = {}
        self.ended: set[int] = set()  # pruned configurations
        for report in reports:
            self.goes_on(report)

    def goes_on(self, report: MetricReport) -> bool:
        """Return whether a configuration continues after a report."""
        if report.number not in self._trials:
            self._trials[report.number] = self._study.ask()
        trial = self._trials[report.number]
        trial.report(report.value, report.step)
        if trial.should_prune():
            self.ended.add(report.number)
        return report.number not in self.ended
