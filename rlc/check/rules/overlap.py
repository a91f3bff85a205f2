"""Rules on overlap: what a step needs before its first gradient."""

from __future__ import annotations

from collections.abc import Iterator

from rlc.catalog.index import aggregate_traits
from rlc.check.rules.base import View, rule
from rlc.lang.diagnostics import Label


@rule("overlap", "batch")
def _turns_do_not_overlap(view: View) -> None:
    """How many episodes a batch of turns takes is known only when it is full."""
    kind = view.overlap.kind
    if kind != "synchronous" and view.batch.kind == "turns":
        label = Label(view.at("batch"), "plays episodes until there are enough turns")
        message = f"`{kind}()` cannot be combined with `turns()`"
        view.error("RL0318", "overlap", message, "take `groups()` as the batch", label)


@rule("overlap", "batch", "advantage", "aggregate", "kl")
def _parts_are_enough(view: View) -> None:
    """Where a batch is streamed, its parts are trained on before all of it is known."""
    if view.overlap.kind != "streamed" or view.batch.kind == "turns":
        return
    label = Label(view.at("overlap"), "trains on a part as soon as it is there")
    for path, what, instead in _of_the_whole(view):
        message = f"{what} the whole batch, of which `streamed()` has only a part at a time"
        advice = f"{instead}take `synchronous()` or `asynchronous()` as the overlap"
        view.error("RL0319", path, message, advice, label)


def _of_the_whole(view: View) -> Iterator[tuple[str, str, str]]:
    """What needs all of a batch: where it stands, how a message begins, what does without."""
    for path, step in view.steps_of_scheme():
        over = getattr(step, "over", "group")
        if over not in ("group", "role"):
            what = f"`over = {over}` in the advantage needs"
            yield path, what, "compare within groups, or "
    if aggregate_traits(view.aggregate.kind).over is not None:
        yield "aggregate", f"`{view.aggregate.kind}()` needs", "add up by `token_sum()`, or "
    if view.kl is not None:
        yield "kl", "the mean distance of `kl = reference(…)` needs", ""
    if view.batch.updates > 1:
        yield "batch.updates", f"`updates = {view.batch.updates}` splits", ""
