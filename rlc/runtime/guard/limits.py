"""What a stage's finished steps decide about the next: go on, overlap no more, or end the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

from rlc.plan.records import SftPlan, TrainPlan

KL = "kl/sample_train_k2"
SYNCHRONOUS = "guard/synchronous"
_NO_REWARD = "no episode had a reward"


@frozen
class Decision:
    """What to say of a step, and why the run ends with it, if it does. ``metrics`` go with those
    of the step, so that a resumed run reads there what was decided."""

    notes: tuple[str, ...] = ()
    end: str | None = None
    metrics: Mapping[str, float] = field(factory=dict)


@define
class StageGuard:
    """Looks at the steps of a stage in order."""

    stage: TrainPlan | SftPlan
    synchronous: bool = False  # whether steps no longer overlap
    _above: bool = False  # whether the last known KL was above the guard's
    _failed: int = 0  # steps in a row in which too much failed
    _unusable: bool = False  # whether no rollout of the last step could be used

    def replay(self, done: Iterable[Mapping[str, Any]]) -> None:
        """Take up what the steps before a resume decided. Their failures do not count against
        the run any more: somebody may have mended what failed."""
        for metrics in done:
            self._above = self._is_above(metrics)
            self.synchronous = bool(metrics.get(SYNCHRONOUS, self.synchronous))

    def look(self, step: int, metrics: Mapping[str, Any], cause: str | None) -> Decision:
        """What follows from the metrics of a step; ``cause`` is its first failure."""
        if not isinstance(self.stage, TrainPlan):
            return Decision()
        notes = list(self._skip(step, metrics, cause))
        end = self._hopeless(metrics, cause)
        was, self._above = self._above, self._is_above(metrics)
        if self._above and not was:
            note, stop = self._crossing(step, float(metrics[KL]))
            notes += [] if stop else [note]
            end = end or (note if stop else None)
        guard = self.stage.kl_guard
        told = {SYNCHRONOUS: float(self.synchronous)} if guard else {}
        return Decision(tuple(notes), end, told)

    def _skip(self, step: int, metrics: Mapping[str, Any], cause: str | None) -> Iterable[str]:
        """Say once, of steps in a row without a usable rollout, why. (That no rollout was better
        than its peers is said with every such step's own line.)"""
        was, self._unusable = self._unusable, "reward/mean" not in metrics
        if self._unusable and not was:
            why = f"no rollout could be used; the first cause: {cause or _NO_REWARD}"
            yield f"step {step} changes no weights: {why}"

    def _hopeless(self, metrics: Mapping[str, Any], cause: str | None) -> str | None:
        assert isinstance(self.stage, TrainPlan)
        plan, failed = self.stage.give_up, metrics["rollouts/failed"]
        if plan is None:
            return None
        share = failed / (failed + metrics["rollouts/played"])
        lost = "reward/mean" not in metrics or share >= plan.share
        self._failed = self._failed + 1 if lost else 0
        if self._failed < plan.steps:
            return None
        rows = "in the last step" if plan.steps == 1 else f"in each of the last {plan.steps} steps"
        what = "no rollout could be used" if plan.share == 1 else f"{plan.share:.0%} or more failed"
        return f"{rows} {what}; the first cause: {cause or _NO_REWARD}"

    def _is_above(self, metrics: Mapping[str, Any]) -> bool:
        """Where nothing was trained, nothing is known, and all stays as it was."""
        guard = self.stage.kl_guard if isinstance(self.stage, TrainPlan) else None
        if guard is None or metrics.get(KL) is None:
            return self._above
        return not metrics[KL] <= guard.max  # NaN is above any

    def _crossing(self, step: int, kl: float) -> tuple[str, bool]:
        """What to say where the KL rises above the guard's, and whether the run stops."""
        assert isinstance(self.stage, TrainPlan)
        assert self.stage.kl_guard is not None
        guard = self.stage.kl_guard
        text = (
            f"in step {step} trainer and sampler are {kl:.3g} nats a token apart, "
            f"above the {guard.max:g} of kl_guard"
        )
        if guard.then == "synchronous" and not self.synchronous:
            self.synchronous = True
            text += ": from here on steps are synchronous"
        return text, guard.then == "stop"
