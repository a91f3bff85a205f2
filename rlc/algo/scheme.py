"""What an advantage scheme is: returns, then baselines, scales and clips in order.

Plain records without arrays, so that the compiler can hold and print a scheme without numpy;
:mod:`rlc.algo.advantages` computes it.
"""

from __future__ import annotations

from typing import Literal

from rlc.record import frozen

Scope = Literal["group", "env", "batch"]


@frozen
class Returns:
    """``episode``: the sum of the rewards, one value a rollout. ``turn``: discounted reward-to-go
    ``G_t = r_t + gamma G_{t+1}``, one value a turn."""

    unit: Literal["episode", "turn"]
    gamma: float


@frozen
class Baseline:
    """Subtract a baseline computed ``over`` a scope.

    ``weight = tokens`` counts each value as often as it has action tokens.
    ``singleton`` is what a scope with a single value gets.
    """

    kind: Literal["mean", "leave_one_out", "length_weighted"]
    over: Scope
    weight: Literal["value", "tokens"]
    singleton: Literal["zero", "raw", "drop", "error"]


@frozen
class Scale:
    """Divide by a spread (``std``) or by the scope's mean return (``mean``, MaxRL).

    ``eps_place``: ``outside`` divides by ``s + eps``, ``inside`` by ``sqrt(s² + eps)``.
    A constant scope gives exact zeros for ``std``.
    """

    kind: Literal["std", "mean"]
    over: Scope
    weight: Literal["value", "tokens"]
    ddof: int
    eps: float
    eps_place: Literal["outside", "inside"]


@frozen
class Clip:
    low: float
    high: float


AdvantageStep = Baseline | Scale | Clip


@frozen
class AdvantageScheme:
    """An advantage scheme: returns, then steps in order.

    ``constant`` says what becomes of a group whose returns are all equal before the first step:
    ``keep`` (its advantages are what the steps give, zeros under a group baseline) or ``drop``.
    """

    name: str
    returns: Returns
    steps: tuple[AdvantageStep, ...]
    constant: Literal["keep", "drop"]
