"""Which configurations are tried: Optuna's samplers, each proposal a function of what is known.

Every proposal has a sampler of its own, seeded by the sweep's seed and the proposal's number, and
is given what has been tried before. So a sweep that goes on after a crash proposes what it would
have proposed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from rlc.compile import number_text
from rlc.errors import Error
from rlc.plan import AxisPlan, Configuration, SweepPlan
from rlc.seeds import derive_seed

_TRIES = 200  # proposals that may have been tried before, one after the other


class NoOptunaError(Error):
    """The package that draws configurations is not installed."""


@frozen
class Proposal:
    """A configuration that was proposed; ``value`` is None while its trials run."""

    configuration: Configuration
    value: float | None


def optuna() -> Any:
    """The package, quiet. Raise NoOptunaError if it is not installed."""
    try:
        import optuna as package
    except ImportError as error:
        message = "a search that draws configurations needs optuna"
        raise NoOptunaError(message, "pip install 'rlc[sweep]', or `search = grid()`") from error
    package.logging.set_verbosity(package.logging.WARNING)
    return package


def propose(
    sweep: SweepPlan, seed: int, number: int, before: Sequence[Proposal]
) -> Configuration | None:
    """Return the configuration with a number, from 1; ``before`` has those with smaller ones, in
    order. None if all that are drawn were tried before."""
    package = optuna()
    axes = {axis.path: _distribution(package, axis) for axis in sweep.axes}
    learns = sweep.search.learns
    for attempt in range(_TRIES):
        stream = derive_seed(seed, "sweep", sweep.name, number, attempt) % 2**32
        # What was proposed again and again is drawn at random: there may be little else left.
        sampler = _sampler(package, stream, learns and attempt < _TRIES // 2)
        direction = "maximize" if sweep.metric.more_is_better else "minimize"
        study = package.create_study(sampler=sampler, direction=direction)
        if learns:
            study.add_trials([_told(package, axes, sweep.axes, tried) for tried in before])
        drawn = study.ask(axes).params
        found = {axis.path: _written(axis, drawn[axis.path]) for axis in sweep.axes}
        if all(found != tried.configuration for tried in before):
            return found
    return None


def _sampler(package: Any, seed: int, learns: bool) -> Any:
    if not learns:
        return package.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", package.exceptions.ExperimentalWarning)
        # What still runs counts as bad, so that trials side by side are not all the same.
        return package.samplers.TPESampler(seed=seed, constant_liar=True)


def _distribution(package: Any, axis: AxisPlan) -> Any:
    if axis.range is None:
        return package.distributions.CategoricalDistribution(axis.values)
    drawn, log = axis.range, axis.range.scale == "log"
    if drawn.whole:
        step, low = int(drawn.step or 1), int(drawn.low)
        high = low + (int(drawn.high) - low) // step * step  # the last that it can reach
        return package.distributions.IntDistribution(low, high, step=step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # steps that do not reach the upper end
        return package.distributions.FloatDistribution(
            drawn.low, drawn.high, log=log, step=drawn.step
        )


def _told(package: Any, axes: Any, plans: Sequence[AxisPlan], tried: Proposal) -> Any:
    """What Optuna has to know of a configuration."""
    params = {
        plan.path: tried.configuration[plan.path]
        if plan.range is None
        else (int if plan.range.whole else float)(tried.configuration[plan.path])
        for plan in plans
    }
    if tried.value is None:
        running = package.trial.TrialState.RUNNING
        return package.trial.create_trial(params=params, distributions=axes, state=running)
    return package.trial.create_trial(params=params, distributions=axes, value=tried.value)


def _written(axis: AxisPlan, value: Any) -> str:
    """A value as a recipe writes it; numbers that were drawn from a range to four places."""
    if axis.range is None:
        return str(value)
    if not axis.range.whole:
        places = 4 if axis.range.step is None else 12
        value = min(max(float(f"{value:.{places}g}"), axis.range.low), axis.range.high)
    return number_text(value, axis.range.whole)
