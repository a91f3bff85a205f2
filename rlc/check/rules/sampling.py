"""Rules on how replies are sampled."""

from __future__ import annotations

from collections.abc import Sequence

from rlc.catalog import END_MARKS, is_chat, learns_targets_alone
from rlc.check.view import StageView, rule
from rlc.lang import Label
from rlc.plan import show


@rule("sampling", "loss")
def _on_policy(view: StageView) -> None:
    """The gradient is that of the model at temperature 1, over its whole vocabulary."""
    sampling = view.sampling
    if _learns_targets_alone(view):
        return
    compared = view.parts.get("kl") is not None or bool(view.parts.get("teacher"))  # a rule below
    changed = {
        "temperature": sampling.temperature != 1 and not compared,
        "top_p": sampling.top_p < 1,
        "top_k": sampling.top_k > 0,
    }
    for name, differs in changed.items():
        if differs:
            _report(view, f"sampling.{name}", name, getattr(sampling, name))
    for env in view.parts.get("envs", ()):
        temperature = env.rollouts.temperature
        if not compared and temperature not in (None, 1, sampling.temperature):
            _report(view, f"envs.{env.name}.rollouts.temperature", "temperature", temperature)


def _learns_targets_alone(view: StageView) -> bool:
    """Whether no logprob of a sampled token enters the loss."""
    known = [view.parts.get(name) for name in ("advantage", "kl", "teacher")]
    return known[0] is not None and learns_targets_alone(known[0], known[1], known[2] or ())


def _report(view: StageView, path: str, name: str, value: float) -> None:
    message = f"{name} = {value:g} samples from another distribution than is trained"
    advice = "the ratio between the two enters the loss; 1, 1 and -1 keep it at 1"
    view.warning("RL0409", path, message, advice)


@rule("sampling")
def _top_k(view: StageView) -> None:
    if view.sampling.top_k == 0:
        message = "top_k = 0 leaves no token to sample"
        view.error("RL0410", "sampling.top_k", message, "-1 samples from all tokens")


@rule("sampling", "envs")
def _texts_end_replies(view: StageView) -> None:
    """A text that ends replies does so before another, and before the renderer's own end."""
    own, envs = view.sampling.stop, view.envs
    _report_idle(view, "sampling.stop", own, all(map(is_chat, envs)))
    for env in envs:
        if (stop := env.rollouts.stop or ()) != own:
            _report_idle(view, f"envs.{env.name}.rollouts.stop", stop, is_chat(env))


def _report_idle(view: StageView, path: str, stop: Sequence[str], chat: bool) -> None:
    for at, text in enumerate(stop):
        shorter = next((one for one in stop if one in text and one != text), None)
        if chat and text in END_MARKS:
            message = f"{_quoted(text)} ends a turn, and the renderer's own end holds anyway"
        elif shorter is not None:
            message = f"{_quoted(text)} ends no reply: its part {_quoted(shorter)} does so before"
        elif text in stop[:at]:
            message = f"{_quoted(text)} is there twice"
        else:
            continue
        view.warning("RL0756", f"{path}.{at}", message, "take it out")


def _quoted(text: str) -> str:
    return show(text, "string")


@rule("kl", "teacher", "envs")
def _penalty_temperature(view: StageView) -> None:
    """The logprobs of other models are those at temperature 1; the sampler's are tempered."""
    field, other = ("kl", "reference") if view.kl is not None else ("teacher", "teacher")
    if (view.kl is None and not view.teacher) or _learns_targets_alone(view):
        return
    for env in view.envs:
        temperature = env.rollouts.temperature
        if temperature in (None, 1):
            continue
        own = "sampling" not in view.parts or temperature != view.sampling.temperature
        path = f"envs.{env.name}.rollouts.temperature" if own else "sampling.temperature"
        label = Label(view.at(field), "compares logprobs at temperature 1")
        message = "the KL penalty compares tempered logprobs with the reference's own"
        if field == "teacher":
            message = "tempered logprobs are compared with the teacher's own"
        advice = f"sample at temperature 1, or leave the {'penalty' if view.kl else other} out"
        view.warning("RL0417", path, message, advice, label)
        return
