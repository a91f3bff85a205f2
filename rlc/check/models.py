"""A ``model`` declaration: which base, which service, which renderer."""

from __future__ import annotations

import os
from typing import Any

from rlc.catalog import (
    CATALOGUE,
    FREE,
    MODEL_FIELDS,
    PRICE_KINDS,
    PRICES,
    UNKNOWN_PRICE,
    BaseModelFacts,
    Provider,
    ProviderError,
    find_model,
    find_provider,
    find_retired,
    model_at,
    model_names,
    nearest_model,
    settings_of,
    stated_models,
    stated_price,
)
from rlc.check.bind import Evaluate, Owner, bind
from rlc.check.scope import known_values, rename
from rlc.check.values import Value, said
from rlc.lang import BlockDecl, Diagnostics, Label, nearest, replace
from rlc.plan import (
    JOURNAL_FILE,
    LOCAL,
    WHERE_PATHS_START,
    ModelPlan,
    ModelState,
    located,
    rebased,
    show,
)
from rlc.records import evolve, values_of


def model_value(
    decl: BlockDecl, evaluate: Evaluate, recipe: str, found: Diagnostics
) -> Value | None:
    """Return the model of a declaration (a ModelState), completed from the catalogue; ``recipe`` is
    the path of the recipe."""
    owner = Owner("model", "a `model`", "field", decl.name.span, unread=decl.unread)
    bound = bind(decl.fields, MODEL_FIELDS, owner, evaluate, found)
    base = bound.values.get("base")
    base = base and _folder(base, recipe)
    for settings in settings_of(recipe):
        found.extend(settings.found)
    model = _find(base, bound.values, recipe, found) if base else None
    if base is None or model is None or not bound.complete:
        return None
    bound.values["base"] = base
    values = bound.values
    service = _service(values.pop("service"), base, model, found)
    renderer = _renderer(values.pop("renderer"), base, model, decl, found)
    if service is None or renderer is None or not _weights(values, service, recipe, found):
        return None
    stated = _stated(base, service, recipe)
    if renderer.origin == CATALOGUE:
        renderer = evolve(renderer, origin=stated.get("renderer", CATALOGUE))
    name = Value("string", decl.name.id, decl.name.span, decl.name.span)
    context = values.pop("context")
    if context.data is None:
        origin = CATALOGUE if model.renderers or model.context else "unknown"
        context = Value("int", model.context, base.span, stated.get("context", origin))
    price = _price(values.pop("price"), base, service, recipe, found)
    fields: dict[str, Any] = {**values, "service": service, "renderer": renderer}
    record = ModelPlan(name=name, context=context, price=price, **fields)  # type: ignore[arg-type]
    _report_unknown(base, context, price.data if price else model.price, found)
    return Value("model", ModelState(record, None), decl.span, decl.name.span)


def _price(
    given: Value, base: Value, service: Value, recipe: str, found: Diagnostics
) -> Value | None:
    """Return the prices that the recipe or a file states (a PricePlan); None if none is."""
    own, day = {}, None
    if given.data is not None:
        kinds = {kind: getattr(given.data, kind) for kind in PRICES}
        own = {kind: usd for kind, usd in kinds.items() if usd.data is not None}
        day = given.data.as_of.data
        if not own:
            advice = f"name what is known of {', '.join(f'`{kind}`' for kind in PRICES)}"
            found.error("RL0205", given.span, "this states no price", advice)
        elif service.data == LOCAL:
            message = "a model on this machine costs nothing, so its `price` counts for nothing"
            found.error("RL0312", given.span, message, "remove it")
        elif day is None:
            message = "these prices have no date, so nobody knows when they are too old"
            advice = 'add the day that they are of: `as_of = "2026-11-20"`'
            found.warning("RL0171", given.span, message, advice)
    price = stated_price(base.data, service.data, recipe, own, day)
    if price is None:
        return None
    file = _stated(base, service, recipe).get("prices", CATALOGUE)
    return Value("price", price, given.span, given.origin if own else file)


def _report_unknown(base: Value, context: Value, price: Any, found: Diagnostics) -> None:
    """Warn of what is not known of a model that the catalogue does not have."""
    kinds = values_of(price)
    priced = all(kinds.get(kind) is not None for kind in PRICE_KINDS)
    unknown = ["context"] * (context.data is None) + ["prices"] * (not priced)
    if base.type == "path" or find_model(base.data) is not None or not unknown:
        return
    message = f'"{base.data}" is not in the catalogue; unknown: its {" and ".join(unknown)}'
    advice = "say what you know, here or in `rlc.toml`: `context = 65_536`, `price = { … }`"
    if near := nearest(base.data, model_names()):
        advice += f"; or did you mean `{near}`?"
    found.warning("RL0107", base.span, message, advice)


def _stated(base: Value, service: Value, recipe: str) -> dict[str, str]:
    """Return the files that state context, renderer and prices of a model, by what they state."""
    found: dict[str, str] = {}
    for one in stated_models(recipe, base.data)[::-1]:
        whats = ("context", "renderer", "prices") if one.service == service.data else ("renderer",)
        found |= {what: one.file for what in whats if getattr(one, what)}
    return found


def reference_model(values: dict[str, Value], recipe: str, found: Diagnostics) -> bool:
    """Make a model of the reference of a KL penalty that is a text: a base, or weights of the model
    that is trained. Return False after a report."""
    kl = values["kl"]
    named: Any = kl.data and kl.data.reference
    if not isinstance(named, Value) or named.type == "model":
        return True
    own: Any = values["model"].data
    text, service = str(named.data), own.service
    name = evolve(named, type="string", data=f"{own.name.data}.base")
    model = evolve(own, name=name, base=named, weights=evolve(named, type="string", data=None))
    if text != own.base.data:
        price = _price(evolve(named, data=None), named, service, recipe, found)
        model = evolve(model, name=evolve(name, data=text), price=price)
    if "://" in text or (named.type == "path" and _has_weights(located(text, recipe))):
        fields: dict[str, Any] = {"weights": named, "base": own.base, "price": own.price}
        for key in ("lora_rank", "train_mlp", "train_attn", "train_unembed"):
            fields[key] = evolve(getattr(own, key), origin="default of model")
        if not _weights(fields, service, recipe, found):
            del values["kl"]
            return False
        model = evolve(model, **fields)
    state = evolve(named, type="model", data=ModelState(model, None))
    values["kl"] = evolve(kl, data=evolve(kl.data, reference=state))
    return True


def _has_weights(name: str) -> bool:
    from rlc.catalog import ADAPTER_CONFIG, weights_folder

    folder = weights_folder(name)
    files = (JOURNAL_FILE, ADAPTER_CONFIG)
    return folder != name or any(os.path.isfile(os.path.join(folder, file)) for file in files)


def _weights(values: dict[str, Value], service: Value, recipe: str, found: Diagnostics) -> bool:
    """Give the weights their exact name. What the model leaves open is theirs, and what it says has
    to be. Return False after a report."""
    given = values["weights"]
    with_optimizer = given.type == "state"
    origin = given.span if with_optimizer else "default of model"
    flag = values["with_optimizer"] = Value("bool", with_optimizer, given.span, origin)
    if with_optimizer:  # what `state()` is given
        given = values["weights"] = given.data
    if given.data is None:
        return True
    from rlc.catalog import WeightsError, find_weights, is_run_weights

    if not is_run_weights(given.data):
        return True
    try:
        weights = find_weights(located(given.data, recipe))
    except WeightsError as error:
        seen = _from_here(given, recipe)
        fix = replace(given.span, f'"{seen}"', f'write `"{seen}"`') if seen else None
        advice = f'as seen from this file it is "{seen}"' if seen else WHERE_PATHS_START
        found.error("RL0330", given.span, error.message, error.hint or advice, fix=fix)
        return False
    origin = said(given.origin) + (f": {weights.chosen}" if weights.chosen else "")
    values["weights"] = evolve(given, data=weights.exact_name(given.data), origin=origin)
    base, label = values["base"], Label(given.span, "these are the weights")
    own = located(base.data, recipe) if base.type == "path" else base.data
    if weights.service != service.data:
        message = f"these weights are of the service `{weights.service}`, and this model is on "
        message += f"`{service.data}`"
        found.error("RL0306", given.span, message, "a state stays on the service that saved it")
        return False
    if weights.base is not None and not _same_model(weights.base, own, not weights.is_adapter):
        message = f'the weights are of "{weights.base}", and this model is "{base.data}"'
        advice = "an adapter fits the model that it was trained on"
        found.error("RL0331", base.span, message, advice, label)
        return False
    theirs, complete = {"lora_rank": weights.rank, **weights.trains}, True
    if with_optimizer and not weights.has_optimizer:
        message = "an adapter of PEFT has no state of an optimiser"
        if not weights.is_adapter:
            message = "these weights were saved for sampling, without the state of an optimiser"
        advice = f"start with a fresh one: `weights = {given.span.text}`"
        found.error("RL0331", flag.span, message, advice)
        complete = False
    for name, data in theirs.items():
        value = values[name]
        if value.origin == "default of model":
            values[name] = Value(value.type, data, given.span, "that of its weights")
        elif value.data != data:
            has, needs = show(value.data, value.type), show(data, value.type)
            message = f"`{name}` is {has}, and that of the weights is {needs}"
            advice = f"leave it out: it is then {needs}"
            found.error("RL0331", value.span, message, advice, label)
            complete = False
    return complete


def _same_model(one: str, other: str, certain: bool) -> bool:
    """Return whether two names are of one model. Unless the first one is ``certain``, only two
    models of the catalogue are known to differ: PEFT may name one by a folder."""
    if os.path.isdir(one) and os.path.isdir(other):
        return os.path.samefile(one, other) or not certain
    unknown = find_model(one) is None or find_model(other) is None
    return one == other or (unknown and not certain)


def _from_here(given: Value, recipe: str) -> str | None:
    """Return the path that the recipe should have, for one relative to the working directory; None
    if there is no such folder."""
    from rlc.catalog import weights_folder

    path = str(given.data)
    folder = weights_folder(path)
    seen = rebased(folder, "", recipe) + path.removeprefix(folder)
    return seen if not os.path.isabs(path) and os.path.isdir(folder) and seen != path else None


def _folder(base: Value, recipe: str) -> Value:
    """Return a folder as the plan names it, even if it is written like the name of a model."""
    known = base.type == "path" or find_model(base.data) or find_retired(base.data)
    if known or not os.path.isdir(os.path.join(base.span.source.folder, base.data)):
        return base
    path = rebased(f"./{base.data}", base.span.source.folder, recipe)
    return Value("path", path, base.span, base.origin)


def _find(
    base: Value, values: dict[str, Value], recipe: str, found: Diagnostics
) -> BaseModelFacts | None:
    """Return the catalogue's model, or an unknown one for a folder or a name that a server of the
    user's may have; None after a report."""
    name, own = base.data, values.get("service")
    try:
        there = find_provider(own.data) if own and own.data else None
    except ProviderError as error:
        found.error("RL0340", values["service"].span, error.message, error.hint)
        return None
    if there and there.models != CATALOGUE and there.hosted and base.type != "path":
        return _of_provider(base, there, recipe, found)
    if (model := model_at(name, recipe)) is not None:
        return model
    if (retired := find_retired(name)) is not None:
        message = f'the service no longer trains "{name}" (since {retired.since})'
        found.error("RL0108", base.span, message, f'the nearest is "{retired.use}"')
        return None
    if base.type == "path":
        folder = located(name, recipe)
        if os.path.isdir(folder):
            return BaseModelFacts(name, LOCAL, None, (), FREE)
        found.error("RL0107", base.span, f'there is no folder "{folder}"', WHERE_PATHS_START)
        return None
    message, others = f'there is no model "{name}"', model_names()
    renderer = values.get("renderer")
    hosted = there is not None and there.hosted and renderer is not None and renderer.data
    advice = f"{known_values(others, name)} (a folder starts with `./` or `/`)"
    if _is_misspelt(name, others):
        advice += "; if it is another model, list it in `rlc.toml`" if hosted else ""
    elif there and hosted:
        return BaseModelFacts(name, there.name, None, (), UNKNOWN_PRICE)
    else:
        advice += "; a model that is not listed takes `service = tinker`, a `renderer`, and its "
        advice += "`context` and `price`; `rlc models --refresh` reads the list anew"
    fix = rename(base.span, name, others, others=True)
    found.error("RL0107", base.span, message, advice, fix=fix)
    return None


def _of_provider(
    base: Value, service: Provider, recipe: str, found: Diagnostics
) -> BaseModelFacts | None:
    """Return what is known of a model on a service with models of its own; None after a report."""
    name = base.data
    if (offered := service.offered(name)) is None:
        message = f'"{name}" is not on the service `{service.name}`'
        found.error("RL0306", base.span, message, nearest_model(name, service))
        return None
    unlisted = BaseModelFacts(name, service.name, None, (), offered.price)
    known = model_at(name, recipe, service.name) or unlisted
    own = [one.context for one in stated_models(recipe, name) if one.service == service.name]
    context = next(filter(None, (*own, offered.context, known.context)), None)
    return evolve(known, context=context, price=offered.price)


def _is_misspelt(name: str, others: tuple[str, ...]) -> bool:
    """Return whether a name can only be meant as another: with other digits it is another model."""
    near = nearest(name, others)
    digits = [[char for char in text if char.isdigit()] for text in (name, near or "")]
    return (near is not None and digits[0] == digits[1]) or any(
        other.endswith(f"/{name}") for other in others
    )


def _service(chosen: Value, base: Value, model: BaseModelFacts, found: Diagnostics) -> Value | None:
    if chosen.data is None:
        return Value("word", model.service, base.span, CATALOGUE)
    if chosen.data != model.service:
        message = f'"{base.data}" is not on the service `{chosen.data}`'
        advice = "to train it here, give the folder that holds its weights as `base`"
        if not model.hosted:
            advice = "it is here; `rlc run --service tinker --base-url …` trains it on your server"
        found.error("RL0306", chosen.span, message, advice)
        return None
    return chosen


def _renderer(
    chosen: Value, base: Value, model: BaseModelFacts, decl: BlockDecl, found: Diagnostics
) -> Value | None:
    if chosen.data is not None:
        return chosen
    if not model.renderers:
        what = "a model from a folder" if base.type == "path" else f'"{base.data}"'
        message = f"{what} needs `renderer`: how its chats become tokens"
        advice = "for example `renderer = qwen3_instruct`"
        found.error("RL0302", decl.name.span, message, advice)
        return None
    return Value("string", model.renderers[0], base.span, CATALOGUE)
