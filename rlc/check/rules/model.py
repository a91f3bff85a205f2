"""Rules on the model: LoRA rank, what is trained, renderer, reference."""

from __future__ import annotations

import os

from rlc.catalog.facts.models import (
    find_model,
    find_retired,
    model_names,
    renderer_fits,
    tokenizer_of,
)
from rlc.check.rules.base import View, rule
from rlc.check.suggest import closest
from rlc.lang.diagnostics import Label
from rlc.plan.records import LOCAL, TINKER, ModelPlan

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
        _state_on_service(view, "model.weights", view.model.weights)


def _state_on_service(view: View, path: str, state: str) -> None:
    """A saved state is on the service that saved it."""
    service = view.model.service
    other = next((s for s, scheme in _SCHEMES.items() if state.startswith(scheme)), service)
    if other != service:
        message = f'"{state}" is on the service `{other}`, and this model is on `{service}`'
        view.error("RL0306", path, message, "a state stays on the service that saved it")


@rule("model", "kl")
def _reference_fits(view: View) -> None:
    """A reference is a model like any other, and shares the tokens of the one that is trained."""
    name, model, path = view.kl and view.kl.reference, view.model, "kl.reference"
    if name in (None, model.base):
        return
    known = find_model(name)
    if "://" in name:
        _state_on_service(view, path, name)
    elif (retired := find_retired(name)) is not None:
        message = f'the service no longer has "{name}" (since {retired.since})'
        view.error("RL0108", path, message, _other_reference(model))
    elif known is None and not os.path.isdir(view.located(name)):
        message = f'there is no model "{name}" to compare with'
        likely = closest(name, model_names())
        advice = f"did you mean `{likely[0]}`?" if likely else _other_reference(model)
        view.error("RL0107", path, message, advice)
    elif _home(name) != _home(model.base):
        message = f'the reference "{name}" is not on the service `{model.service}`'
        view.error("RL0306", path, message, _other_reference(model))
    elif _have_other_tokens(view, name, model.base):
        label = Label(view.at("model"), f"has the tokens of `{model.base}`")
        message = f'"{name}" has other tokens, so its logprobs are of another text'
        view.error("RL0326", path, message, _other_reference(model), label)


def _have_other_tokens(view: View, one: str, other: str) -> bool:
    """Whether two models are known to have different vocabularies."""
    if find_model(one) is not None or find_model(other) is not None:
        known = {tokenizer_of(one), tokenizer_of(other)}
        return None not in known and len(known) == 2
    import json  # few recipes compare two folders

    vocabularies = []
    for folder in (one, other):
        try:
            path = os.path.join(view.located(folder), "tokenizer.json")
            with open(path, encoding="utf-8") as file:
                vocabularies.append(json.load(file)["model"]["vocab"])
        except (OSError, ValueError, LookupError, TypeError):  # it may come in another form
            return False
    return bool(vocabularies[0] != vocabularies[1])


def _home(base: str) -> str:
    """The service that a model lives on, wherever this stage is to run."""
    known = find_model(base)
    return known.service if known else LOCAL


def _other_reference(model: ModelPlan) -> str:
    return f"usual is the model itself before training: `reference({model.name}.base, …)`"
