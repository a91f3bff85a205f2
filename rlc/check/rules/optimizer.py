"""Rules on the optimiser: rates, schedules, the settings of Adam."""

from __future__ import annotations

from rlc.catalog import LORA_RATES, find_model
from rlc.check.view import StageView, rule

_LARGEST_EPS = 1e-4  # beyond, it weighs more than most gradients and Adam no longer adapts


@rule("model", "optimizer")
def _learning_rate(view: StageView) -> None:
    rate, model = view.optimizer.learning_rate, find_model(view.model.base)
    low, high = model.learning_rates if model else (LORA_RATES[0], 1.0)
    path = "optimizer.learning_rate"
    if rate == 0:
        message = "with a learning rate of 0 the model does not change"
        view.warning("RL0403", path, message, "fine for a control run")
    elif rate < low:
        message = f"a learning rate of {rate:g} hardly moves a LoRA adapter"
        full = "such rates are for full fine-tuning; " if rate >= low / 100 else ""
        advice = f"{full}LoRA mostly takes between {low:g} and {min(high, LORA_RATES[1]):g}"
        view.warning("RL0403", path, message, advice)
    elif rate > high:
        message = f"a learning rate of {rate:g} is far from what works with `{view.model.base}`"
        advice = f"LoRA with RL mostly takes between {low:g} and {high:g}"
        view.warning("RL0403", path, message, advice)


@rule("optimizer", "steps")
def _schedule_fits(view: StageView) -> None:
    """A rate that only rises is never reached; one that falls to itself is constant."""
    schedule, steps = view.optimizer.schedule, view.steps
    if steps and schedule.warmup >= steps and not view.is_from_command_line("steps"):
        message = f"the rate still rises when the run ends: warmup = {schedule.warmup} of {steps}"
        advice = "a few steps are usual, at most a tenth of all"
        view.warning("RL0431", "optimizer.schedule.warmup", message, advice)
    if schedule.kind != "constant" and schedule.floor == 1:
        message = f"`{schedule.kind}()` with a floor of the whole rate never falls"
        advice = "take a smaller floor, or `constant()`"
        view.warning("RL0431", "optimizer.schedule.floor", message, advice)


@rule("optimizer")
def _adam(view: StageView) -> None:
    """The gradient's mean forgets sooner than its square; ``eps`` only keeps from dividing by 0."""
    adam = view.optimizer
    if adam.beta1 > adam.beta2:
        message = f"beta1 = {adam.beta1:g} is more than beta2 = {adam.beta2:g}"
        advice = "the mean of the gradient forgets sooner than that of its square; swap them"
        view.warning("RL0432", "optimizer.beta1", message, advice)
    if adam.eps > _LARGEST_EPS:
        message = f"eps = {adam.eps:g} outweighs most gradients, and Adam no longer adapts"
        view.warning("RL0432", "optimizer.eps", message, "1e-8 is usual, or 1e-12")
