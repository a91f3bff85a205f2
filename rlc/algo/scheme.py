"""Advantage schemes: returns, then baselines, scales and clips in order.

Plain records without arrays, so that the compiler can hold and print a scheme without numpy;
:mod:`rlc.algo.advantages` computes it.
"""

from __future__ import annotations

from typing import Literal

from rlc.records import Record, frozen

Scope = Literal["group", "role", "env", "batch_role", "batch"]
"""The values that are compared: those of one task (``group``), of one task in one role (``role``:
a rollout's part, such as the solver's or the judge's), of one environment, of one role in all tasks
(``batch_role``), or all."""


@frozen
class Returns(Record):
    """``episode``: the sum of the rewards, one value a rollout. ``turn``: discounted reward-to-go
    ``G_t = r_t + gamma G_{t+1}``, one value a turn."""

    unit: Literal["episode", "turn"]
    gamma: float


@frozen
class Baseline(Record):
    """Subtract a baseline computed ``over`` a scope.

    ``weight = tokens`` counts each value as often as it has action tokens; ``length_weighted``
    always does, ``best_of_others`` (the largest of the other values) never.
    ``singleton`` says what a scope with a single value gets.
    """

    kind: Literal["mean", "leave_one_out", "length_weighted", "best_of_others"]
    over: Scope
    weight: Literal["value", "tokens"]
    singleton: Literal["zero", "raw", "drop", "error"]


@frozen
class Scale(Record):
    """Divide by a size ``s`` computed ``over`` a scope.

    ``std``: the standard deviation; ``std_of_others``: that of the other values, and where these
    are all equal nothing is divided; ``rms``: the root of the mean square; ``mean``: the mean
    (MaxRL); ``nonzero_share``: the share of values that are not zero (GPG).

    The size is ``of`` the values as they are now, or of the returns that they began as.
    ``eps_place``: ``outside`` divides by ``s + eps``, ``inside`` by ``sqrt(s² + eps)``, ``clamp``
    by ``sqrt(max(s², eps))``. A size of at most ``tolerance`` gives exact zeros, and so does the
    ``std`` of equal values.
    """

    kind: Literal["std", "std_of_others", "rms", "mean", "nonzero_share"]
    over: Scope
    weight: Literal["value", "tokens"]
    ddof: int
    eps: float
    eps_place: Literal["outside", "inside", "clamp"]
    of: Literal["values", "returns"] = "values"
    tolerance: float = 0.0


@frozen
class Clip(Record):
    """Limit the values; None: no limit on that side."""

    low: float | None
    high: float | None


@frozen
class WeightedSum(Record):
    """Add up the components of the reward, each times its weight: the steps before it are applied
    to each component by itself, those after it to the sum (GDPO, arXiv 2601.05242)."""


@frozen
class RunningBaseline(Record):
    """Subtract a moving average of the returns of earlier steps, one for each role of each
    environment, which is 0 before the first (RAE, arXiv 2506.24119). Of n returns of a step each
    leaves ``decay`` of the average: :func:`rlc.algo.episodes.renewed`."""

    decay: float


AdvantageStep = Baseline | Scale | Clip | WeightedSum | RunningBaseline


@frozen
class AdvantageScheme(Record):
    """An advantage scheme: returns, then steps in order.

    ``constant`` is for groups whose returns are all equal before the first step: ``keep`` (their
    advantages are those of the steps, zeros under a group baseline) or ``drop``.
    """

    name: str
    returns: Returns
    steps: tuple[AdvantageStep, ...]
    constant: Literal["keep", "drop"]


def sums_components(scheme: AdvantageScheme) -> bool:
    """Return whether the components of a reward are normalised one by one."""
    return any(isinstance(step, WeightedSum) for step in scheme.steps)


def running_baseline(scheme: AdvantageScheme) -> RunningBaseline | None:
    """Return the step of a scheme that subtracts a moving average, if it has one."""
    return next((step for step in scheme.steps if isinstance(step, RunningBaseline)), None)


def task_scope(scheme: AdvantageScheme) -> Scope:
    """Return the scope in which constant groups are dropped: a task, or one role of it if the
    scheme compares within roles."""
    by_role = any(getattr(step, "over", "") in ("role", "batch_role") for step in scheme.steps)
    return "role" if by_role else "group"
