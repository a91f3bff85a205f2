"""What users state of models, in ``rlc.toml`` of a project and in their own configuration; and what
they have read anew, which is kept there."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rlc.catalog.builtins.training import DAY, PRICES
from rlc.catalog.facts import (
    PRICE_KINDS,
    UNKNOWN_PRICE,
    BaseModelFacts,
    find_model,
    renderer_names,
)
from rlc.catalog.providers import (
    as_listed,
    config_folder,
    find_provider,
    listed_source,
    price_of,
    provider_names,
)
from rlc.errors import Error
from rlc.lang import Diagnostics, Source, Span, did_you_mean
from rlc.plan import TINKER, PricePlan, is_hosted
from rlc.records import evolve, field, frozen, values_of

PROJECT, CONFIG = "rlc.toml", "config.toml"
STALE_DAYS = 90
_COLUMNS = {kind: kind for kind in PRICE_KINDS} | {"cached": "cached_prefill"}


@frozen(eq=False)
class StatedModel:
    """What a file states of a model; ``prices`` are USD by kind, those of :data:`PRICES`."""

    base: str
    file: str
    service: str = TINKER
    context: int | None = None
    renderer: str | None = None
    prices: Mapping[str, Any] = field(factory=dict)
    as_of: str | None = None
    source: str | None = None


@frozen(eq=False)
class StatedFile:
    """The models of a file by name, and what is wrong with it."""

    models: Mapping[str, StatedModel]
    found: Diagnostics


def settings_of(recipe: str) -> list[StatedFile]:
    """Return what the project of a recipe states, then what the user's configuration does, then
    what was read anew."""
    project = project_file(os.path.abspath(os.path.dirname(recipe)))
    files = (project, os.path.join(config_folder(), CONFIG), table_file())
    return [_read(f, os.stat(f).st_mtime_ns) for f in files if f and os.path.isfile(f)]


def project_file(folder: str) -> str | None:
    """Return the settings of the project that a folder is in; None if there are none."""
    file, above = os.path.join(folder, PROJECT), os.path.dirname(folder)
    if os.path.isfile(file):
        return file
    return None if above == folder else project_file(above)


def stated_models(recipe: str, base: str) -> list[StatedModel]:
    """Return what is stated of a model, the nearest first."""
    return [one.models[base] for one in settings_of(recipe) if base in one.models]


def model_at(base: str, recipe: str, service: str | None = None) -> BaseModelFacts | None:
    """Return what is known of a model where a recipe is: by the catalogue, and as it is stated, of
    this service or of its own."""
    stated, model = stated_models(recipe, base), find_model(base)
    if model is None and stated:
        model = BaseModelFacts(base, stated[0].service, None, (), UNKNOWN_PRICE)
    if model is None:
        return None
    model = evolve(model, service=service or model.service)
    for one in reversed(stated):  # the nearest counts most
        context = (one.service == model.service and one.context) or model.context
        renderers = (one.renderer,) if one.renderer else model.renderers
        model = evolve(model, context=context, renderers=renderers)
    if (price := stated_price(base, model.service, recipe)) is None:
        return model
    return evolve(model, price=as_listed(price), as_of=price.as_of, source=price.source)


def stated_price(
    base: str,
    service: str,
    recipe: str,
    own: Mapping[str, Any] | None = None,
    day: str | None = None,
) -> PricePlan | None:
    """Return the prices of a model as they are stated for a service, completed from the catalogue;
    None if none is. ``own`` are those of the recipe, which are of ``day``."""
    nearest = [StatedModel(base, "the recipe", service, prices=own or {}, as_of=day)]
    layers = [one for one in nearest + stated_models(recipe, base) if one.service == service]
    there = find_provider(service)
    if there is None or not there.bills or not any(one.prices for one in layers):
        return None
    if (listed := price_of(base, service)) is not None:
        prices = {kind: usd for kind, usd in values_of(listed).items() if usd is not None}
        source, listed_on = listed_source(base, service)
        layers.append(StatedModel(base, source or service, prices=prices, as_of=listed_on))
    chosen = dict.fromkeys(PRICES)
    said: dict[str, list[str]] = {}
    days = []
    for layer in layers:
        kinds = [kind for kind in layer.prices if chosen[kind] is None]
        chosen |= {kind: layer.prices[kind] for kind in kinds}
        if kinds:
            said[", ".join(filter(None, (layer.file, layer.source, layer.as_of)))] = kinds
            days += [layer.as_of] if layer.as_of else []
    each = [f"{who} ({', '.join(kinds)})" for who, kinds in said.items()]
    return PricePlan(
        **chosen, as_of=min(days, default=None), source="; ".join(said if len(said) == 1 else each)
    )


@lru_cache(maxsize=8)
def _read(path: str, stamp: int) -> StatedFile:  # noqa: ARG001 (a part of the cache's key)
    """Return what a file states; ``stamp`` is the time of its last change."""
    import tomllib

    loads: Callable[[str], Any] = json.loads if path.endswith(".json") else tomllib.loads

    found, name = Diagnostics(), os.path.relpath(path)
    source = Source(path if name.startswith("..") else name, "")
    try:
        with open(path, encoding="utf-8-sig") as file:
            source = Source(source.name, file.read())
        if not _is_table(tables := loads(source.text)):
            raise ValueError("it holds no tables")
    except (OSError, ValueError) as error:
        place, start = re.search(r"line (\d+), column (\d+)", str(error)), len(source.text)
        if place is not None:
            start = source.line_starts[int(place[1]) - 1] + int(place[2]) - 1
        found.error("RL0170", Span(source, start, start), f"this cannot be read: {error}")
        return StatedFile({}, found)
    reader, file_name = _Reader(source, found), os.path.basename(path)
    given = reader.expect(tables, (), {"models": ("tables of models", _is_table)})
    models = given.get("models", {})
    stated = reader.expect(models, ("models",), dict.fromkeys(models, ("a table", _is_table)))
    return StatedFile({b: reader.model(b, one, file_name) for b, one in stated.items()}, found)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


_Wanted = Mapping[str, tuple[str, Callable[[Any], bool]]]  # what a key takes, and whether it fits
_MODEL: _Wanted = {
    "service": (
        "the name of a provider, such as tinker",
        lambda name: name in provider_names() and is_hosted(name),
    ),
    "context": ("tokens, a whole number from 1 on", lambda n: type(n) is int and n > 0),
    "renderer": ("the name of a renderer", lambda value: value in renderer_names()),
    "price": ("a table, such as { sample = 0.6, train = 0.6 }", _is_table),
    "as_of": ("a day, such as 2026-11-20", lambda day: bool(re.fullmatch(DAY, str(day)))),
    "source": ("a text", lambda value: isinstance(value, str)),
}
_PRICE: _Wanted = dict.fromkeys(
    PRICES,
    ("dollars, a number from 0 on", lambda n: type(n) in (int, float) and 0 <= n < float("inf")),
)


@frozen(eq=False)
class _Reader:
    source: Source
    found: Diagnostics

    def model(self, base: str, table: Mapping[str, Any], file: str) -> StatedModel:
        """Return what a table states of a model, without what is wrong."""
        path = ("models", base, "price")
        known = self.expect(table, path[:2], _MODEL)
        prices = self.expect(known.pop("price", {}), path, _PRICE)
        if prices and "as_of" not in table:
            message = f"the prices of `{base}` have no date, so nobody knows when they are too old"
            advice = f"add the day that they are of: `as_of = {today()}`"
            self.found.warning("RL0171", self._at(path), message, advice)
        if "as_of" in known:
            known["as_of"] = str(known["as_of"])
        if "prefill" in prices:
            prices = {"cached": prices["prefill"], **prices}  # nothing else says what it saves
        return StatedModel(base, file, prices=prices, **known)

    def expect(
        self, table: Mapping[str, Any], path: tuple[str, ...], wanted: _Wanted
    ) -> dict[str, Any]:
        """Return the values of a table that are as they should be; report the others."""
        good = {}
        for key, value in table.items():
            what, fits = wanted.get(key, ("", None))
            if fits is not None and fits(value):
                good[key] = value
                continue
            message, advice = f"`{key}` takes {what}; here it is {value!r}", None
            if fits is None:
                message = f"unknown key `{key}`"
                advice = did_you_mean(key, list(wanted)) or f"known: {', '.join(wanted)}"
            self.found.error("RL0170", self._at((*path, key)), message, advice)
        return good

    def _at(self, path: tuple[str, ...]) -> Span:
        """Return where a key stands, as far as its name is found after those around it."""
        start = end = 0
        for key in path:
            word = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])")
            match = word.search(self.source.text, end)
            start, end = match.span() if match else (start, end)
        return Span(self.source, start, end)


class TableError(Error, ValueError):
    """A table of models that cannot be read or kept; the message says why."""

    exit_status = 2


def today() -> str:
    """Return the day of today, or that of ``RLC_TODAY``, for what has to be the same every day."""
    return os.environ.get("RLC_TODAY") or time.strftime("%Y-%m-%d")


def is_stale(as_of: str | None) -> bool:
    """Return whether prices of a day are too old to be relied on."""
    from datetime import date, timedelta  # checks need none

    oldest = date.fromisoformat(today()) - timedelta(STALE_DAYS)
    return as_of is not None and as_of < oldest.isoformat()


def how_old(as_of: str | None) -> str:
    """Return that prices of a day are old, for the end of a line; nothing if they are not."""
    return f", more than {STALE_DAYS} days old" if is_stale(as_of) else ""


def table_file() -> str:
    """Return the file that keeps what was read anew."""
    return os.path.join(config_folder(), "models.json")


def keep_table(source: str, models: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep models of today in place of what was read of them before. Raise TableError if the file
    cannot be read or written."""
    path, kept = table_file(), {}
    dated = {name: {**facts, "as_of": today(), "source": source} for name, facts in models.items()}
    try:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)["models"]
        os.makedirs(config_folder(), exist_ok=True)
        for name in [name for name, facts in dated.items() if "price" not in facts]:
            if "price" in kept.get(name, {}):  # a server tells no prices, and takes none away
                del dated[name]
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"models": {**kept, **dated}}, file, indent=1)
        os.replace(f"{path}.new", path)
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = "`rlc models --forget` removes it"
        raise TableError(f"cannot keep models in {path}: {error}", hint) from error


def published_models(text: str) -> dict[str, dict[str, Any]]:
    """Return the models of a table as Tinker publishes it: a JSON list of records with
    ``tinker_id``, ``context`` ("64K") and prices ("$0.195"). Raise TableError if it is not one."""
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise TableError(f"it is not JSON: {error}") from error
    found = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(name := row.get("tinker_id"), str):
            context = _number(row.get("context"))
            prices = {kind: _number(row.get(column)) for kind, column in _COLUMNS.items()}
            known = {kind: usd for kind, usd in prices.items() if usd is not None}
            found[name] = ({"context": int(context)} if context else {}) | {"price": known}
    if not found:
        raise TableError("it is no list of models with a `tinker_id`")
    return found


def _number(text: Any) -> float | None:
    """Return ``$0.195`` or ``64K`` as a number; None for all else, such as "—"."""
    match = re.fullmatch(r"\$?(\d+(?:\.\d+)?)([KM]?)", str(text).strip())
    return float(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]] if match else None
