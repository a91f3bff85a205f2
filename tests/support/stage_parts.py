"""The parts of a plan's stage by what a recipe calls them, wherever the plan has them."""

from __future__ import annotations

from typing import Any, TypeVar

from attrs import frozen

from rlc.plan.leaves import children_of, evolved
from rlc.plan.stages import Evaluation, StagePlan, Training

S = TypeVar("S", Training, Evaluation)


@frozen
class Flat:
    """``flat(stage).envs`` is the value of the field ``env`` of a stage's declaration."""

    stage: StagePlan

    def __getattr__(self, name: str) -> Any:
        return (children_of(self.stage) or {})[name]


flat = Flat


def changed(stage: S, **parts: Any) -> S:
    """A stage with other values in some of its fields."""
    return evolved(stage, parts)
