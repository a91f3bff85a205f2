"""Rules on how a stage runs: checkpoints, trackers, errors, evaluations on the way."""

from __future__ import annotations

from rlc.catalog import tracker_traits
from rlc.check.view import StageView, rule
from rlc.lang import Label
from rlc.plan import show

SECONDS_A_STEP = 60  # what a step on the hosted service takes at the least, sampling included


@rule("save", "model", "steps")
def _lasts_long_enough(view: StageView) -> None:
    """A checkpoint that the service deletes while the run still needs it."""
    ttl, service = view.save.ttl_seconds, view.model.service
    if ttl is None or service != "tinker" or view.steps is None:
        return
    expected = view.steps * SECONDS_A_STEP
    if ttl < expected:
        message = (
            f"a checkpoint is deleted after {show(ttl, 'duration')}, and {view.steps:,} steps "
            f"take longer than that"
        )
        advice = f"at a minute a step they take about {expected / 3_600:.0f}h; raise `ttl`"
        view.warning("RL0416", "save.ttl_seconds", message, advice)


@rule("track", "envs")
def _uploads_something(view: StageView) -> None:
    for tracker in view.track:
        source = tracker_traits(tracker.name).source
        if source is not None and all(env.source != source for env in view.envs):
            message = f"`{tracker.name}()` uploads episodes of OpenReward, and there are none"
            view.error("RL0312", "track", message, "take it out")


@rule("save")
def _keeps_the_best(view: StageView) -> None:
    """Choosing the best checkpoint needs several of them."""
    if view.save.every is None and view.save.best:
        message = "`best` needs checkpoints to choose from"
        view.error("RL0312", "save.best", message, "for example `every(20, best = true)`")


@rule("kl_guard", "overlap")
def _has_steps_to_stop(view: StageView) -> None:
    """A guard can only end an overlap that the stage has."""
    guard = view.kl_guard
    if guard is not None and guard.then == "synchronous" and not view.overlap.max_staleness:
        message = "`then = synchronous` needs asynchronous steps, and these never overlap"
        advice = "take `asynchronous()` as the overlap, or `then = warn` or `stop`"
        view.error("RL0312", "kl_guard.then", message, advice)


@rule("metrics", "samples")
def _enough_samples(view: StageView) -> None:
    """pass@k needs k episodes of a task."""
    for index, metric in enumerate(view.metrics):
        if metric.k is not None and metric.k > view.samples:
            label = Label(view.at("samples"), f"{view.samples} of each task are played")
            message = f"`{metric.name}({metric.k})` needs {metric.k} episodes of each task"
            advice = f"`samples = {metric.k}`, or a smaller k"
            view.error("RL0316", f"metrics.{index}.k", message, advice, label)


@rule("every", "first", "after")
def _during_a_stage(view: StageView) -> None:
    """``every`` and ``first`` count the steps of a stage."""
    if view.after is not None:
        return
    for name, given in (("every", view.every is not None), ("first", view.first)):
        if given:
            message = f"`{name}` counts the steps of a stage, and this evaluates a model"
            view.error("RL0317", name, message, "`model = main` evaluates the stage `main`")
