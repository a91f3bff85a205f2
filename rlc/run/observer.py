"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen

from rlc.plan.tree import EvalPlan, Plan, SftPlan, TrainPlan


@frozen
class StageSummary:
    """How a stage went. ``values`` has its measure, "reward" or "loss", of each finished step."""

    stage: str
    planned: int
    measure: str
    values: list[float] = field(repr=False)
    seconds: float
    checkpoint: str | None

    def window(self, last: bool) -> float | None:
        """Mean of the first or last five steps; None before the first step."""
        part = self.values[-5:] if last else self.values[:5]
        return sum(part) / len(part) if part else None


@frozen
class EvalSummary:
    """What an evaluation gave after a step of the stage that it evaluates."""

    name: str
    step: int
    metrics: dict[str, float]


@frozen
class Summary:
    """How a run ended: ``finished``, ``interrupted`` or ``budget``."""

    folder: Path
    state: str
    stages: list[StageSummary]
    evaluations: list[EvalSummary]
    spent_usd: float

    def _repr_html_(self) -> str:
        from rlc.run.notebook import summary_html

        return summary_html(self)


class Observer(Protocol):
    """Called by the runtime on its own thread; must return quickly."""

    def started(self, plan: Plan, folder: Path) -> None: ...

    def stage_started(self, stage: TrainPlan | SftPlan, done: int, values: Sequence[float]) -> None:
        """``done`` steps were already done before (a resumed run), with these values."""

    def progress(self, done: int, planned: int) -> None:
        """Groups played of those planned for the running step."""

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step of the stage that was started last is done and journalled."""

    def evaluated(self, plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> None:
        """An evaluation is done and journalled."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""

    def close(self) -> None:
        """No more will come."""


class Silent:
    """An observer that says nothing."""

    def started(self, plan: Plan, folder: Path) -> None:
        pass

    def stage_started(self, stage: TrainPlan | SftPlan, done: int, values: Sequence[float]) -> None:
        pass

    def progress(self, done: int, planned: int) -> None:
        pass

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        pass

    def evaluated(self, plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass
