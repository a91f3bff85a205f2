"""The moving averages of returns that a scheme with a running baseline subtracts.

There is one for each role of each environment. A step subtracts the averages as they were after the
last step that is over for certain when it begins, so that neither overlap nor the order of a batch
changes an advantage. They are journalled with each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field

from rlc.algo import Advantages, AdvantageScheme, Floats, renewed, running_baseline
from rlc.runtime.records import Rollout

KEY = ".averages"  # in a step's cursor; no environment has this name

Averages = Mapping[str, float]  # by environment and role


@define(eq=False)
class RunningBaselines:
    """The averages of one stage, by the step after which they hold."""

    decay: float
    lag: int  # steps that may still be under way when another begins
    _after: dict[int, Averages] = field(factory=dict)
    _returns: dict[int, dict[str, list[float]]] = field(factory=dict, init=False)

    @classmethod
    def of(
        cls, scheme: AdvantageScheme, lag: int, cursors: Sequence[Mapping[str, Any]]
    ) -> RunningBaselines | None:
        """Return them as the steps that left these cursors have; None if no scheme needs them."""
        step = running_baseline(scheme)
        if step is None:
            return None
        known = {number: cursor.get(KEY, {}) for number, cursor in enumerate(cursors, start=1)}
        return cls(step.decay, lag, known)

    def subtracted(self, step: int, rollouts: Iterable[Rollout]) -> Floats:
        """Return what is subtracted from the returns of each rollout of a step."""
        averages = self.after(step - 1 - self.lag)
        return np.array([averages.get(_label(one), 0.0) for one in rollouts], dtype=np.float64)

    def add(self, step: int, rollouts: Sequence[Rollout], found: Advantages) -> None:
        """Take note of the returns of a step, or of a part of it."""
        returns = self._returns.setdefault(step, {})
        each = len(found.returns_V) == len(rollouts)
        counts = [1] * len(rollouts) if each else found.turns_R.tolist()
        parts = np.split(found.returns_V, np.cumsum(counts)[:-1])
        for rollout, part in zip(rollouts, parts, strict=True):
            returns.setdefault(_label(rollout), []).extend(part.tolist())

    def after(self, step: int) -> Averages:
        """Return the averages after a step that has computed its advantages."""
        if step < 1:
            return {}
        if step not in self._after:
            before = self.after(step - 1)
            new = {
                label: renewed(before.get(label, 0.0), values, self.decay)
                for label, values in self._returns.pop(step, {}).items()
            }
            self._after[step] = dict(sorted({**before, **new}.items()))
        return self._after[step]


def _label(rollout: Rollout) -> str:
    return f"{rollout.env}/{rollout.role}" if rollout.role else rollout.env
