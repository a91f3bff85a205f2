"""Models by their names: a run, an adapter, a state that Tinker keeps, or a base model."""

from __future__ import annotations

import os
from typing import Any

from attrs import evolve

from rlc.catalog import (
    find_retired,
    find_weights,
    model_at,
    model_names,
    service_of,
    stated_price,
    weights_folder,
)
from rlc.check import known_values
from rlc.errors import Error
from rlc.plan import LOCAL, ModelPlan, is_hosted
from rlc.service import ServiceError, require_packages


class UnknownModelError(Error):
    """A name that stands for no model."""

    exit_status = 2


def named_model(
    name: str, base: str | None = None, renderer: str | None = None, base_url: str | None = None
) -> ModelPlan:
    """Return the model of a name: ``runs/x@main:20`` and the like (see :func:`find_weights`), the
    folder of an adapter of PEFT, ``tinker://RUN/weights/NAME``, a base model of the catalogue, or
    the folder of one. The other arguments are those of :func:`rlc.model`; the base of a
    ``tinker://`` path is by default the one that the service reports. Raise UnknownModelError if
    there is no such model, or its base or renderer is not known, and WeightsError if its run or
    adapter cannot be used."""
    known = model_at(name, "")
    if known is not None:
        return _model(name, known.base, renderer)
    if (service := service_of(name)) is not None and is_hosted(service):
        if base is None:
            base, trained = _reported_base(name, base_url, service)
            renderer = renderer or trained
        return _model(name, base, renderer, weights=name, service=service)
    if os.path.isfile(os.path.join(name, "config.json")):
        return _model(name, name, renderer)
    if (retired := find_retired(name)) is not None:
        advice = f"the nearest is {retired.use}"
        raise UnknownModelError(f"the service no longer has {name} (since {retired.since})", advice)
    if not os.path.isdir(weights_folder(name)):
        message = f"{name} is no run, no folder of a model or an adapter, and no base model"
        raise UnknownModelError(message, known_values(model_names(), name))
    found = find_weights(name)
    base = base or found.base
    if base is None:
        raise UnknownModelError(f"{name} does not say its base model", "give --base")
    weights, renderer = found.exact_name(name), renderer or found.renderer
    model = _model(name, base, renderer, weights, found.service)
    trains: dict[str, Any] = dict(found.trains)
    return evolve(model, lora_rank=found.rank, **trains)


def _reported_base(path: str, base_url: str | None, service: str) -> tuple[str, str | None]:
    """Return base and renderer (or None) of a state, as the service reports them."""
    try:
        require_packages(service)
        from rlc.service import find_base

        return find_base(path, base_url, service)
    except ServiceError as error:
        message = f"the base model of {path} is not known here: {error.message.rstrip('.')}"
        raise UnknownModelError(message, "give --base") from error


def _model(
    name: str,
    base: str,
    renderer: str | None,
    weights: str | None = None,
    service: str | None = None,
) -> ModelPlan:
    known = model_at(base, "", service)
    if renderer is None and known is not None and known.renderers:
        renderer = known.renderers[0]
    if renderer is None:
        message = f"how {name} writes chats is not known"
        raise UnknownModelError(message, "name a renderer: --renderer qwen3_instruct")
    service = service or (known.service if known else LOCAL)
    return ModelPlan(
        name=name,
        base=base,
        lora_rank=1,
        train_mlp=True,
        train_attn=True,
        train_unembed=True,
        weights=weights,
        renderer=renderer,
        context=known.context if known else None,
        service=service,
        price=stated_price(base, service, ""),
    )
