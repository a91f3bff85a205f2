"""Rules on how replies are drawn."""

from __future__ import annotations

from rlc.check.rules.base import View, rule
from rlc.lang.diagnostics import Label


@rule("sampling", "loss")
def _on_policy(view: View) -> None:
    """The gradient is that of the model at temperature 1, over its whole vocabulary."""
    sampling = view.sampling
    penalised = view.parts.get("kl") is not None  # a rule of its own
    changed = {
        "temperature": sampling.temperature != 1 and not penalised,
        "top_p": sampling.top_p < 1,
        "top_k": sampling.top_k > 0,
    }
    for name, differs in changed.items():
        if differs:
            _report(view, f"sampling.{name}", name, getattr(sampling, name))
    for env in view.parts.get("envs", ()):
        temperature = env.rollouts.temperature
        if not penalised and temperature not in (None, 1, sampling.temperature):
            _report(view, f"envs.{env.name}.rollouts.temperature", "temperature", temperature)


def _report(view: View, path: str, name: str, value: float) -> None:
    message = f"{name} = {value:g} samples from another distribution than is trained"
    advice = "the ratio between the two enters the loss; 1, 1 and -1 keep it at 1"
    view.warning("RL0409", path, message, advice)


@rule("sampling")
def _top_k(view: View) -> None:
    if view.sampling.top_k == 0:
        message = "top_k = 0 leaves no token to sample"
        view.error("RL0410", "sampling.top_k", message, "-1 samples from all tokens")


@rule("kl", "envs")
def _penalty_temperature(view: View) -> None:
    """The reference's logprobs are those at temperature 1; the sampler's are tempered."""
    if view.kl is None:
        return
    for env in view.envs:
        temperature = env.rollouts.temperature
        if temperature in (None, 1):
            continue
        own = "sampling" not in view.parts or temperature != view.sampling.temperature
        path = f"envs.{env.name}.rollouts.temperature" if own else "sampling.temperature"
        label = Label(view.at("kl"), "compares logprobs at temperature 1")
        message = "the KL penalty compares tempered logprobs with the reference's own"
        advice = "sample at temperature 1, or leave the penalty out"
        view.warning("RL0417", path, message, advice, label)
        return
