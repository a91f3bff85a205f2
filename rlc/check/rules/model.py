"""Rules on the model: LoRA rank, what is trained, learning rate."""

from __future__ import annotations

from rlc.catalog.facts.models import find_model
from rlc.check.rules.base import View, rule


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


@rule("model", "optimizer")
def _learning_rate(view: View) -> None:
    rate, model = view.optimizer.learning_rate, find_model(view.model.base)
    if rate == 0:
        message = "with a learning rate of 0 the model does not change"
        view.warning("RL0403", "optimizer.learning_rate", message, "fine for a control run")
        return
    if model is None:
        return
    low, high = model.learning_rates
    if not low <= rate <= high:
        message = f"a learning rate of {rate:g} is far from what works with `{model.base}`"
        advice = f"LoRA with RL mostly takes between {low:g} and {high:g}"
        view.warning("RL0403", "optimizer.learning_rate", message, advice)
