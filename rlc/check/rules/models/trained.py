"""Rules on the model that is trained: LoRA rank, layers, renderer, saved state."""

from __future__ import annotations

from rlc.catalog.facts.models import find_model, renderer_fits
from rlc.check.rules.base import View, rule
from rlc.plan.records import LOCAL, TINKER

_SCHEMES = {TINKER: "tinker://", LOCAL: "local://"}


@rule("model")
def _lora_rank(view: View) -> None:
    rank, model = view.model.lora_rank, find_model(view.model.base)
    if rank & (rank - 1):
        below, above = 1 << (rank.bit_length() - 1), 1 << rank.bit_length()
        message = f"the LoRA rank {rank} is not a power of two"
        view.error("RL0401", "model.lora_rank", message, f"take {below} or {above}")
    elif model and model.max_rank and rank > model.max_rank:
        message = f"`{model.base}` takes a LoRA rank of at most {model.max_rank}; this is {rank}"
        view.error("RL0401", "model.lora_rank", message, f"take {model.max_rank}")


@rule("model")
def _trains_something(view: View) -> None:
    model = view.model
    if not (model.train_mlp or model.train_attn or model.train_unembed):
        message = "no layer of this model is trained"
        advice = "leave one of train_mlp, train_attn, train_unembed on"
        view.error("RL0402", "model.train_unembed", message, advice)


@rule("model")
def _renderer_fits(view: View) -> None:
    """A chat is written in the markup that the model knows."""
    model, known = view.model, find_model(view.model.base)
    if known is not None and not renderer_fits(model.base, model.renderer):
        message = f"`{model.renderer}` writes the chats of other models than `{model.base}`"
        listed = " or ".join(f"`{name}`" for name in known.renderers)
        advice = f"leave `renderer` out, or take {listed}"
        view.error("RL0325", "model.renderer", message, advice)


@rule("model")
def _state_is_there(view: View) -> None:
    if view.model.weights is not None:
        state_on_service(view, "model.weights", view.model.weights)


def state_on_service(view: View, path: str, state: str) -> None:
    """A saved state is on the service that saved it."""
    service = view.model.service
    other = next((s for s, scheme in _SCHEMES.items() if state.startswith(scheme)), service)
    if other != service:
        message = f'"{state}" is on the service `{other}`, and this model is on `{service}`'
        view.error("RL0306", path, message, "a state stays on the service that saved it")
