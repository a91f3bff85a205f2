"""Rules on the advantage scheme and the batch that it is computed from."""

from __future__ import annotations

from rlc.algo.scheme import Baseline, Clip
from rlc.check.rules.base import Rule, View
from rlc.lang.diagnostics import Label


def _group_needs_peers(view: View) -> None:
    """A group of one has nothing to compare with."""
    if view.batch.size > 1:
        return
    steps = view.advantage.steps
    for index, step in enumerate(steps):
        if isinstance(step, Clip) or step.over != "group":
            continue
        if isinstance(step, Baseline) and step.singleton == "raw":
            continue
        what = "baseline" if isinstance(step, Baseline) else "scale"
        label = Label(view.at(f"advantage.steps.{index}"), f"this {what} compares within a group")
        if view.batch.kind == "turns":
            message = "`turns()` plays every task once, so no rollout has a group to compare with"
            advice = "use `groups(16, of = 8)`, or compare over the batch, as `rebn()` does"
        else:
            message = "a group of 1 has no peers: every advantage would be 0"
            advice = "play each task more often, for example `of = 8`"
        view.error("RL0308", "batch.size", message, advice, label)
        return


def _length_baseline_counts_tokens(view: View) -> None:
    """``length_weighted`` is the mean weighted by tokens: another weight has no effect."""
    for index, step in enumerate(view.advantage.steps):
        if isinstance(step, Baseline) and step.kind == "length_weighted" and step.weight == "value":
            path = f"advantage.steps.{index}.weight"
            message = "a `length_weighted` baseline counts tokens, whatever `weight` says"
            view.error("RL0408", path, message, "leave `weight` out, or write `weight = tokens`")


RULES = (
    Rule(("batch", "advantage"), _group_needs_peers),
    Rule(("advantage",), _length_baseline_counts_tokens),
)
