"""A ``model`` declaration: which base, which service, which renderer."""

from __future__ import annotations

import os
from typing import Any

from rlc.catalog.declarations import MODEL_FIELDS
from rlc.catalog.facts.models import FREE, Model, find_model, find_retired, model_names
from rlc.check.bind import Evaluate, Owner, bind
from rlc.check.suggest import known_values, rename
from rlc.check.values import Value
from rlc.lang.ast import BlockDecl
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.paths import WHERE_PATHS_START, located, rebased
from rlc.plan.records import LOCAL, ModelPlan, ModelState

CATALOGUE = "catalogue"


def model_value(
    decl: BlockDecl, evaluate: Evaluate, recipe: str, found: Diagnostics
) -> Value | None:
    """Return the model of a declaration (a ModelState), completed from the catalogue; ``recipe`` is
    the path of the recipe that it is compiled for."""
    owner = Owner("model", "a `model`", "field", decl.name.span, unread=decl.unread)
    bound = bind(decl.fields, MODEL_FIELDS, owner, evaluate, found)
    base = bound.values.get("base")
    base = base and _folder(base, recipe)
    model = _find(base, recipe, found) if base else None
    if base is None or model is None or not bound.complete:
        return None
    bound.values["base"] = base
    values = bound.values
    service = _service(values.pop("service"), base, model, found)
    renderer = _renderer(values.pop("renderer"), base, model, decl, found)
    if service is None or renderer is None:
        return None
    name = Value("string", decl.name.id, decl.name.span, decl.name.span)
    context = Value("int", model.context, base.span, CATALOGUE if model.renderers else "unknown")
    fields: dict[str, Any] = {**values, "service": service, "renderer": renderer}
    record = ModelPlan(name=name, context=context, **fields)  # type: ignore[arg-type]
    return Value("model", ModelState(record, None), decl.span, decl.name.span)


def _folder(base: Value, recipe: str) -> Value:
    """A folder as the plan names it, even if it is written like the name of a model."""
    known = base.type == "path" or find_model(base.data) or find_retired(base.data)
    if known or not os.path.isdir(os.path.join(base.span.source.folder, base.data)):
        return base
    path = rebased(f"./{base.data}", base.span.source.folder, recipe)
    return Value("path", path, base.span, base.origin)


def _find(base: Value, recipe: str, found: Diagnostics) -> Model | None:
    """Return the catalogue's model, or an unknown one for a folder; None after a report."""
    name = base.data
    if (model := find_model(name)) is not None:
        return model
    if (retired := find_retired(name)) is not None:
        message = f'the service no longer trains "{name}" (since {retired.since})'
        found.error("RL0108", base.span, message, f'the nearest is "{retired.use}"')
        return None
    if base.type == "path":
        folder = located(name, recipe)
        if os.path.isdir(folder):
            return Model(name, LOCAL, None, (), FREE)
        found.error("RL0107", base.span, f'there is no folder "{folder}"', WHERE_PATHS_START)
        return None
    message = f'there is no model "{name}"'
    advice = f"{known_values(model_names(), name)} (a folder starts with `./` or `/`)"
    found.error("RL0107", base.span, message, advice, fix=rename(base.span, name, model_names()))
    return None


def _service(chosen: Value, base: Value, model: Model, found: Diagnostics) -> Value | None:
    if chosen.data is None:
        return Value("word", model.service, base.span, CATALOGUE)
    if chosen.data != model.service:
        message = f'"{base.data}" is not on the service `{chosen.data}`'
        if model.service == LOCAL:
            advice = "it is on this machine: `service = local`"
        else:
            advice = "to train it here, give the folder that holds its weights as `base`"
        found.error("RL0306", chosen.span, message, advice)
        return None
    return chosen


def _renderer(
    chosen: Value, base: Value, model: Model, decl: BlockDecl, found: Diagnostics
) -> Value | None:
    if chosen.data is not None:
        return chosen
    if not model.renderers:
        message = "a model from a folder needs `renderer`: how its chats become tokens"
        advice = "for example `renderer = qwen3_instruct`"
        found.error("RL0302", decl.name.span, message, advice)
        return None
    return Value("string", model.renderers[0], base.span, CATALOGUE)
