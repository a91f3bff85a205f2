"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rlc.plan.records import EvalPlan, Plan, SftPlan, TrainPlan


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
