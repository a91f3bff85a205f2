"""What the finished steps of a stage decide: go on, stop overlapping, or end the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from rlc.plan import GiveUpPlan, Training

KL = "kl/sample_train_k2"
SYNCHRONOUS = "guard/synchronous"
NOTHING_LEARNT = "nothing learnt"  # the state of a run in which a stage has ended in vain
_NO_REWARD = "no episode had a reward"


def made_update(metrics: Mapping[str, Any]) -> bool:
    """Whether a step changed the weights."""
    return not metrics.get("optim/skipped", 0.0)


def why_nothing_learnt(
    stage: Training,
    steps: Sequence[Mapping[str, Any]],
    rehearses: bool,
    first_failure: str | None,
) -> str:
    """Say why no step of a stage changed its weights, from the metrics of its steps; empty if one
    did. It is enough for a rehearsal if rollouts have rewards."""
    rewarded = any("reward/mean" in step for step in steps)
    if not steps or any(map(made_update, steps)) or (rehearses and rewarded):
        return ""
    failed, played = (
        int(sum(step.get(f"rollouts/{kind}", 0) for step in steps)) for kind in ("failed", "played")
    )
    reasons = []
    if failed:
        share = f"{failed:,} of {failed + played:,}" if played else f"all {failed:,}"
        reasons.append(f"{share} rollouts failed, the first with {first_failure}")
    if played:
        reasons.append("no group was left with rewards that differ" if rewarded else _NO_REWARD)
    several = f"none of the {len(steps):,} steps of `{stage.name}` changed its weights"
    one = f"the one step of `{stage.name}` changed no weights"
    return f"{several if len(steps) > 1 else one}: {'; '.join(reasons)}"


@frozen
class Decision:
    """What follows from a step.

    ``end`` is the reason to end the run with it, or None. ``metrics`` are stored with those of the
    step, from which a resumed run reads the decision.
    """

    notes: tuple[str, ...] = ()
    end: str | None = None
    metrics: Mapping[str, float] = field(factory=dict)


@define
class StageGuard:
    """Reviews the steps of a stage in order."""

    stage: Training
    synchronous: bool = False  # whether steps no longer overlap
    _above: bool = False  # whether the last known KL exceeded the guard's
    _failed: int = 0  # consecutive steps in which too many rollouts failed
    _unusable: bool = False  # whether no rollout of the last step could be used

    def replay(self, done: Iterable[Mapping[str, Any]]) -> None:
        """Restore the decisions of the steps before a resume.

        Their failures no longer count: the cause may have been repaired.
        """
        for metrics in done:
            self._above = self._is_above(metrics)
            self.synchronous = bool(metrics.get(SYNCHRONOUS, self.synchronous))

    def review(self, step: int, metrics: Mapping[str, Any], cause: str | None) -> Decision:
        """Decide what follows from the metrics of a step; ``cause`` is its first failure."""
        rollouts = self.stage.rollouts
        if rollouts is None:
            return Decision()
        notes, end = list[str](), self._too_many_failures(rollouts.give_up, metrics, cause)
        was_unusable, self._unusable = self._unusable, "reward/mean" not in metrics
        # If rollouts were usable but equally good, the line of each such step says so.
        if self._unusable and not was_unusable:
            why = f"no rollout could be used; the first cause: {cause or _NO_REWARD}"
            notes.append(f"step {step} changes no weights: {why}")
        was_above, self._above = self._above, self._is_above(metrics)
        guard = rollouts.kl_guard
        if guard is None:
            return Decision(tuple(notes), end)
        if self._above and not was_above:
            text = (
                f"in step {step} trainer and sampler are {float(metrics[KL]):.3g} nats a token "
                f"apart, above the {guard.max:g} of kl_guard"
            )
            if guard.then == "stop":
                end = end or text
            elif guard.then == "synchronous" and not self.synchronous:
                self.synchronous = True
                notes.append(text + ": from here on steps are synchronous")
            else:
                notes.append(text)
        return Decision(tuple(notes), end, {SYNCHRONOUS: float(self.synchronous)})

    def _too_many_failures(
        self, plan: GiveUpPlan | None, metrics: Mapping[str, Any], cause: str | None
    ) -> str | None:
        """Return why the run ends, if too much failed in as many steps as the plan allows."""
        if plan is None:
            return None
        failed = metrics["rollouts/failed"]
        share = failed / (failed + metrics["rollouts/played"])
        lost = "reward/mean" not in metrics or share >= plan.share
        self._failed = self._failed + 1 if lost else 0
        if self._failed < plan.steps:
            return None
        rows = "in the last step" if plan.steps == 1 else f"in each of the last {plan.steps} steps"
        what = "no rollout could be used" if plan.share == 1 else f"{plan.share:.0%} or more failed"
        return f"{rows} {what}; the first cause: {cause or _NO_REWARD}"

    def _is_above(self, metrics: Mapping[str, Any]) -> bool:
        """Whether the KL exceeds the guard's; unchanged by a step that trained nothing."""
        guard = None if self.stage.rollouts is None else self.stage.rollouts.kl_guard
        if guard is None or metrics.get(KL) is None:
            return self._above
        return not metrics[KL] <= guard.max  # NaN exceeds every limit
