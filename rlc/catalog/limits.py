"""What a provider cannot do of a stage, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlc.catalog.builtins.losses import LIKELIHOOD
from rlc.catalog.providers import Provider
from rlc.lang import nearest
from rlc.plan import LossPlan, ModelPlan, StagePlan
from rlc.plan.leaves import asked_models, children_of
from rlc.records import frozen

_MOST_LISTED = 8
_SOFT_TARGETS = ("teacher.*.top_k", "data.top_k", "heldout.top_k")


@frozen
class Lack:
    """One thing that a provider cannot do: the dotted path of what asks for it within its stage,
    what is wrong, and what to write instead."""

    path: str
    what: str
    instead: str


def stage_limits(stage: StagePlan, provider: Provider) -> Iterator[Lack]:
    """Yield what a provider cannot do of a stage."""
    yield from limits_of(children_of(stage) or {}, provider)


def limits_of(parts: Mapping[str, Any], provider: Provider) -> Iterator[Lack]:
    """Yield what a provider cannot do of a stage, as far as its ``parts`` are known."""
    who = f"`{provider.name}`"
    models = [("model", parts["model"])] if "model" in parts else []
    models += [(f"{path}.model", state.model) for path, state in asked_models(parts)]
    for path, model in models:
        yield from _of_model(path, model, provider)
    yield from _of_loss(parts.get("loss"), provider)
    for place in () if provider.soft_targets else _SOFT_TARGETS:
        what = f"{who} neither reports nor learns the most likely tokens of a teacher"
        instead = "leave `top_k` out: logprobs of sampled tokens will do"
        found = _found(parts, place.split("."))
        yield from (Lack(path, what, instead) for path, value in found if value is not None)
    if provider.samples == "newest":
        yield from _of_newest(parts, who)
    for place, bound in provider.only.items():
        values = bound["values"]
        for path, value in _found(parts, place.split(".")):
            if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
                name, why = path.rpartition(".")[2], bound.get("why") or "its file says so"
                allowed = " or ".join(_shown(one) for one in values)
                what = f"{who} takes no `{name} = {_shown(value)}`: {why}"
                yield Lack(path, what, f"write `{name} = {allowed}`")


def _of_model(path: str, model: ModelPlan, provider: Provider) -> Iterator[Lack]:
    if model.service != provider.name:
        return  # another rule says so
    offered, who = provider.offered(model.base), f"`{provider.name}`"
    if offered is None:
        yield Lack(path, f"{who} has no model `{model.base}`", nearest_model(model.base, provider))
    elif offered.max_rank is not None and model.lora_rank > offered.max_rank:
        most = offered.max_rank
        what = f"{who} takes a LoRA rank of at most {most} for `{model.base}`"
        yield Lack(f"{path}.lora_rank", f"{what}; this is {model.lora_rank}", f"use {most}")


def nearest_model(base: str, provider: Provider) -> str:
    """Return advice for a model that a provider does not have: the nearest that it has."""
    names = provider.model_names
    likely = nearest(base, names) or _of_family(base, names)
    if likely is not None:
        return f"the nearest that it has is `{likely}`"
    listed = ", ".join(f"`{name}`" for name in names[:_MOST_LISTED])
    return f"it has {listed}" + (", and others" if len(names) > _MOST_LISTED else "")


def _of_family(base: str, names: Sequence[str]) -> str | None:
    """Return the model whose name begins most like this one, beyond its organisation."""

    def shared(name: str) -> int:
        return next(
            n for n in range(len(name), -1, -1) if base.lower().startswith(name[:n].lower())
        )

    best = max(names, key=shared, default="")
    return best if shared(best) > base.find("/") + 1 > 0 else None


def _of_loss(loss: Any, provider: Provider) -> Iterator[Lack]:
    if not isinstance(loss, LossPlan):
        return  # of supervised and preference stages: cross_entropy
    who, losses = f"`{provider.name}`", provider.losses
    if loss.program is not None:
        if not provider.custom_losses:
            instead = f"use one of the service's, such as `{(losses or ('ppo',))[-1]}()`"
            yield Lack("loss", f"{who} computes no losses of a recipe's own", instead)
    elif losses is not None and loss.name not in losses:
        losses = [name for name in losses if name != LIKELIHOOD.name]
        near = nearest(loss.name, losses)
        listed = f"use `{near}()`" if near else f"it has {', '.join(f'`{one}`' for one in losses)}"
        yield Lack("loss", f"{who} has no loss `{loss.name}`", listed)


def _of_newest(parts: Mapping[str, Any], who: str) -> Iterator[Lack]:
    what = f"{who} samples from the newest weights of the model in training alone"
    for path, _ in asked_models(parts):
        judges = ".judges." in path
        instead = (
            "let it answer at an `endpoint(…)`"
            if judges
            else f"leave `{path.partition('.')[0]}` out"
        )
        yield Lack(path, what, instead)
    overlap = parts.get("overlap")
    if overlap is not None and overlap.max_staleness:
        yield Lack("overlap.max_staleness", what, "leave `overlap` out: steps follow each other")
    for env in parts.get("envs", ()):
        if env.play is not None and env.play.past:
            yield Lack(f"envs.{env.name}.play", what, "let it play against `self`, or a program")


def _found(node: Any, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield what is at a place in a stage; ``*`` stands for any name."""
    if not names:
        yield "", node
        return
    for name, child in (children_of(node) or {}).items():
        if names[0] in ("*", name):
            for path, value in _found(child, names[1:]):
                yield f"{name}.{path}".rstrip("."), value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
