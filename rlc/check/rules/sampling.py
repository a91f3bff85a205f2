"""Rules on how replies are drawn."""

from __future__ import annotations

from rlc.check.rules.base import Rule, View


def _on_policy(view: View) -> None:
    """The gradient is that of the model at temperature 1, over its whole vocabulary."""
    sampling = view.sampling
    changed = {
        "temperature": sampling.temperature != 1,
        "top_p": sampling.top_p < 1,
        "top_k": sampling.top_k > 0,
    }
    for name, differs in changed.items():
        if differs:
            value = getattr(sampling, name)
            message = f"{name} = {value:g} samples from another distribution than is trained"
            advice = "the ratio between the two enters the loss; 1, 1 and -1 keep it at 1"
            view.warning("RL0409", f"sampling.{name}", message, advice)


def _top_k(view: View) -> None:
    if view.sampling.top_k == 0:
        message = "top_k = 0 leaves no token to sample"
        view.error("RL0410", "sampling.top_k", message, "-1 samples from all tokens")


RULES = (Rule(("sampling",), _on_policy), Rule(("sampling",), _top_k))
