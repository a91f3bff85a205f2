"""What came out of a sweep: the mean of each configuration, how sure it is, and the best one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from attrs import field, frozen

from rlc.plan import Configuration, SweepPlan
from rlc.sweeps.journal import TrialRecord

# 97.5 % quantiles of Student's t, for 1 degree of freedom and up.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_Z = 1.959964


@frozen
class ConfigurationResult:
    """A configuration with its trials. ``mean`` is that of the metric over the seeds that have
    finished, None if none has; ``margin`` is half of its 95 % confidence interval (Student's t),
    None with fewer than two seeds."""

    number: int
    configuration: Configuration
    trials: tuple[TrialRecord, ...]
    mean: float | None
    margin: float | None

    @property
    def complete(self) -> bool:
        """Whether all its trials have finished."""
        return all(record.state == "finished" for record in self.trials)


@frozen
class SweepState:
    """How a sweep stands; :class:`SweepSummary` says what the attributes are. ``state`` is
    ``"running"`` while it runs."""

    plan: SweepPlan
    state: str
    cause: str
    trials: tuple[TrialRecord, ...] = field(repr=False)
    spent_usd: float

    @property
    def results(self) -> list[ConfigurationResult]:
        """Every configuration that was begun, the best first."""
        return ranked(self.plan, self.trials)

    @property
    def best(self) -> ConfigurationResult | None:
        """The best configuration, None if none has finished."""
        return best_of(self.results)

    @property
    def failed(self) -> list[TrialRecord]:
        """The trials that failed."""
        return [record for record in self.trials if record.state == "failed"]


@frozen
class SweepSummary(SweepState):
    """How a sweep ended; :func:`rlc.sweep` returns it.

    Attributes:
        plan: the record of the sweep.
        state: ``"finished"``, ``"interrupted"``, ``"budget"``, or ``"failed"`` if it gave up.
        cause: why it ended before its end; empty if it did not.
        trials: every trial that was begun or is to be run, with its ``state``, ``cause`` and
            ``value``.
        spent_usd: what it has cost, 0 if that is unknown or nothing.
        folder: the folder of the sweep.
    """

    folder: Path


def ranked(plan: SweepPlan, trials: Iterable[TrialRecord]) -> list[ConfigurationResult]:
    """Return the configurations of some trials: those whose trials have all finished first, the
    best first, and those without a value last."""
    by_number: dict[int, list[TrialRecord]] = {}
    for record in trials:
        by_number.setdefault(record.trial.number, []).append(record)
    results = [_result(number, records) for number, records in by_number.items()]
    sign = -1.0 if plan.metric.more_is_better else 1.0

    def place(result: ConfigurationResult) -> tuple[bool, bool, float, int]:
        value = 0.0 if result.mean is None else sign * result.mean
        return result.mean is None, not result.complete, value, result.number

    return sorted(results, key=place)


def best_of(results: Sequence[ConfigurationResult]) -> ConfigurationResult | None:
    """The first of ranked results, if it has a value."""
    return results[0] if results and results[0].mean is not None else None


def _result(number: int, records: Sequence[TrialRecord]) -> ConfigurationResult:
    values = [r.value for r in records if r.state == "finished" and r.value is not None]
    mean = fmean(values) if values else None
    return ConfigurationResult(
        number, records[0].trial.configuration, tuple(records), mean, margin(values)
    )


def margin(values: Sequence[float]) -> float | None:
    """Return half of the 95 % confidence interval of a mean, by Student's t; None of fewer than two
    values. Values that are all equal have 0, which says little of so few."""
    if len(values) < 2:
        return None
    freedom = len(values) - 1
    if freedom <= len(_T):
        t = _T[freedom - 1]
    else:  # the Cornish–Fisher expansion, exact to 1e-3 here (Abramowitz and Stegun, 26.7.5)
        t = _Z + (_Z**3 + _Z) / (4 * freedom)
        t += (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
        t += (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / (384 * freedom**3)
    return 0.0 if min(values) == max(values) else t * stdev(values) / sqrt(len(values))
