"""Rules on overlap: what a step needs before its first gradient."""

from __future__ import annotations

from rlc.check.view import StageView, rule
from rlc.lang import Label
from rlc.plan import barriers


@rule("overlap", "batch")
def _turns_do_not_overlap(view: StageView) -> None:
    """How many episodes a batch of turns takes is known only when it is full."""
    kind = view.overlap.kind
    if kind != "synchronous" and view.batch.kind == "turns":
        label = Label(view.at("batch"), "plays episodes until there are enough turns")
        message = f"`{kind}()` cannot be combined with `turns()`"
        view.error("RL0318", "overlap", message, "take `groups()` as the batch", label)


@rule("overlap", "batch")
def _parts_have_groups(view: StageView) -> None:
    """The members of a group stay together, so a part has at least one group."""
    parts, batch = view.overlap.minibatches, view.batch
    if batch.kind == "groups" and parts > batch.count:
        message = f"{batch.count:,} groups cannot come in {parts:,} parts"
        advice = f"at most `minibatches = {batch.count}`"
        if batch.count == 1:
            message, advice = "one group cannot come in parts", "take `synchronous()`"
        view.warning("RL0327", "overlap.minibatches", message, advice)


@rule("overlap", "batch", "advantage", "loss", "aggregate", "kl", "teacher")
def _something_is_streamed(view: StageView) -> None:
    """Where the gradient waits for the whole batch, other models can still read its parts."""
    if view.overlap.kind != "streamed" or view.batch.kind == "turns":
        return
    if view.kl is not None or view.teacher:
        return
    found = barriers(view.advantage, view.loss, view.aggregate, None, view.batch)
    waits = {barrier.why: barrier.path for barrier in found}
    if waits:
        labels = (Label(view.at(path), why) for why, path in waits.items())
        message = "`streamed()` has no effect: the gradient waits for the whole batch"
        advice = (
            "take `synchronous()`, which does the same, or `asynchronous()`, which overlaps; a "
            "gradient can be streamed that compares within groups, adds up by `token_sum()` and is "
            "one update"
        )
        view.warning("RL0319", "overlap", message, advice, *labels)
