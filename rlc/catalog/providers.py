"""Providers: the services that models are trained on, each a file of data; and what they cannot do.

Those of rlc are in ``data/providers``. A user adds others: ``NAME.json`` in ``rlc/providers`` of
the folder of their configuration, or in ``.rlc/providers`` of the working directory or of one above
it. ``data/provider_fields.json`` has what such a file can say: the type of each field, and what it
means.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import inf
from typing import Any, Protocol

from rlc.catalog.builtins.losses import LIKELIHOOD
from rlc.catalog.builtins.training import DAY
from rlc.catalog.facts import (
    FREE,
    PRICE_KINDS,
    TINY,
    UNKNOWN_PRICE,
    Price,
    find_model,
    part_cost,
    prices_as_of,
    snapshot,
    storage_price,
)
from rlc.errors import Error
from rlc.lang import nearest
from rlc.plan import LOCAL, TINKER, LossPlan, ModelPlan, PricePlan, StagePlan, is_hosted
from rlc.plan.leaves import asked_models, children_of, models_of
from rlc.records import field, field_names, frozen, values_of

_MOST_LISTED = 8
_SOFT_TARGETS = ("teacher.*.top_k", "data.top_k", "heldout.top_k")
_SAMPLES = _NEWEST, _OR_BASE = "newest", "newest or base"
CATALOGUE = "catalogue"  # the models and prices of `rlc catalog --kind base`

_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "text": (str, "a text"),
    "flag": (bool, "true or false"),
    "names": (list, "a list of names"),
    "table": (dict, "an object"),
}
_OF_MODEL = {"name": str, "context": int, "max_rank": int} | dict.fromkeys(
    PRICE_KINDS, (int, float)
)
_OF_PRICES = dict.fromkeys(("as_of", "source", "note"), str) | {"storage": (int, float)}
_OF_ONLY = {"values": list, "why": str}
_SCHEME = r"[a-z][a-z0-9+.-]*://|accounts/"


class ProviderError(Error, ValueError):
    """The file of a provider says something that it cannot, or there is no such provider."""

    exit_status = 2


@frozen(eq=False)
class OfferedModel:
    """A model of a provider: the provider's name of it; what is unknown is None."""

    name: str
    context: int | None
    max_rank: int | None
    price: Price


@frozen(eq=False)
class Provider:
    """A service, with the :func:`fields` of its file. ``models`` is None if its server alone knows,
    or :data:`CATALOGUE`."""

    name: str
    title: str = ""
    package: str | None = None
    module: str | None = None
    arguments: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    bridge: str | None = None
    url: str | None = None
    key: str | None = None
    keys_at: str | None = None
    scheme: str = "tinker://"
    models: Mapping[str, Mapping[str, Any]] | str | None = None
    losses: Sequence[str] | None = None
    custom_losses: bool = True
    soft_targets: bool = True
    samples: str | None = None
    tempered: bool = True
    seeds: bool = True
    only: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    bills: bool = True
    prices: Mapping[str, Any] = field(factory=dict)
    blocked: str | None = None
    tried: str = "read only"
    as_of: str | None = None
    source: str | None = None

    @property
    def hosted(self) -> bool:
        return is_hosted(self.name)

    @property
    def url_variable(self) -> str:
        """Return the variable of the environment that names its server."""
        return f"{self.name.upper()}_BASE_URL"

    @property
    def finds_itself(self) -> bool:
        """Return whether its client knows the address of its server, if nobody names one."""
        return self.module is not None or self.name == TINKER

    @property
    def refusal(self) -> str | None:
        """Return why rlc does not run on it; None if it does."""
        return self.blocked and f"rlc does not run on `{self.name}`: {self.blocked}"

    def offered(self, base: str) -> OfferedModel | None:
        """Return a model that it has, as far as is known; None if it is known not to have it."""
        known = find_model(base)
        if known is not None and (self.models == CATALOGUE or (not self.models and base == TINY)):
            return OfferedModel(base, known.context, None, known.price)  # a rule knows its rank
        own = self.models if isinstance(self.models, Mapping) else {base: {}}
        if (entry := own.get(base)) is None:
            return None
        of = entry.get
        price = Price(*map(of, PRICE_KINDS)) if self.bills else FREE
        return OfferedModel(of("name", base), of("context"), of("max_rank"), price)

    @property
    def model_names(self) -> tuple[str, ...]:
        """Return the models that its file names."""
        return tuple(self.models) if isinstance(self.models, Mapping) else ()

    def base_of(self, state: str) -> str | None:
        """Return the base model in the path of a state, if it has one: ``SCHEME://BASE/NAME``."""
        base, _, name = state.removeprefix(self.scheme).rpartition("/")
        begins = state.startswith(self.scheme) and bool(name)
        return base if begins and base in self.model_names else None

    @property
    def storage(self) -> float | None:
        """Return USD for a GB of checkpoints and month; None if unknown."""
        if self.models == CATALOGUE:
            return storage_price()
        price: float | None = self.prices.get("storage")
        return price if self.bills else 0.0

    @property
    def priced(self) -> str:
        """Return the date and source of its prices, or what its file notes about them."""
        if self.models == CATALOGUE or not self.hosted:
            return prices_as_of()
        known = [self.prices.get("as_of"), self.prices.get("source"), self.prices.get("note")]
        return ", ".join(filter(None, known)) or "no date and no source"


_LOCAL = Provider(LOCAL, "the embedded engine", scheme="local://", bills=False, tried="it is rlc's")
_BUILT_IN = os.path.join(os.path.dirname(__file__), "data", "providers")


def fields() -> dict[str, list[str]]:
    """Return what the file of a provider can have: the type of each field, and what it means."""
    return snapshot("provider_fields")  # type: ignore[no-any-return]


def provider_names() -> tuple[str, ...]:
    """Return the names of all providers: the embedded engine, Tinker, rlc's others, the user's."""
    return tuple(dict.fromkeys((LOCAL, TINKER, *sorted(_files(_own_folders())))))


def find_provider(name: str) -> Provider | None:
    """Return a provider, or None if there is none of that name. Raise ProviderError if its file
    cannot be used."""
    return _LOCAL if name == LOCAL else _read(name, _own_folders())


def reread_providers() -> None:
    """Read the files of providers anew from now on, for a process that outlives a change."""
    for known in (_folders, _files, _read):
        known.cache_clear()


def provider(name: str) -> Provider:
    """Return a provider. Raise ProviderError if there is none, or its file cannot be used."""
    if (found := find_provider(name)) is not None:
        return found
    near = nearest(name, provider_names())
    hint = f"there are {', '.join(provider_names())}; others are NAME.json in .rlc/providers"
    raise ProviderError(
        f"there is no service `{name}`", f"did you mean `{near}`?" if near else hint
    )


def service_of(state: str) -> str | None:
    """Return the service whose states have paths like this one; None if no scheme is like it."""
    names = provider_names() if "://" in state else ()
    found = (one for one in map(find_provider, names) if one and state.startswith(one.scheme))
    return next((one.name for one in found), None)


class TokenCounts(Protocol):
    """Tokens by the kinds that a service bills."""

    prefill: int
    cached: int
    sampled: int
    trained: int


def model_price(model: ModelPlan) -> Price | None:
    """Return the prices of a model: those that are stated, else those of its service."""
    if not model.hosted or model.price is None:
        return price_of(model.base, model.service)
    return as_listed(model.price)


def as_listed(price: PricePlan) -> Price:
    """Return prices that are stated as those of the catalogue are."""
    return Price(*(getattr(price, kind) for kind in PRICE_KINDS))


def price_of(base: str, service: str) -> Price | None:
    """Return the prices of a model on a service; None if they are unknown."""
    there = find_provider(service)
    offered = there.offered(base) if there else None
    if offered is None or not any(usd is not None for usd in values_of(offered.price).values()):
        return None
    return offered.price


def listed_source(base: str, service: str) -> tuple[str, str | None]:
    """Return where the prices of a model on a service are from, and their date."""
    there, known = find_provider(service), find_model(base)
    if there is None:
        return "", None
    if there.hosted and there.models != CATALOGUE:
        return there.prices.get("source", ""), there.prices.get("as_of")
    return (known.source, known.as_of) if known is not None else ("", None)


def price_source(model: ModelPlan) -> tuple[str, str | None]:
    """Return where the prices of a model are from, with their date, and that alone; an empty text
    if they are unknown."""
    if model.price is not None:
        return model.price.source, model.price.as_of
    source, day = listed_source(model.base, model.service)
    return (f"{day}, {source}", day) if day is not None else ("", None)


def dollars(price: Price | None, usage: TokenCounts) -> float | None:
    """Return the cost of used tokens in USD; None if a price that it needs is unknown."""
    price = price or UNKNOWN_PRICE
    tokens = (usage.prefill, usage.cached, usage.sampled, usage.trained)
    prices = (price.prefill, price.cached, price.sample, price.train)
    known = [cost for cost in map(part_cost, tokens, prices) if cost is not None]
    return sum(known) if len(known) == len(tokens) else None


def config_folder() -> str:
    """Return the folder of the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "rlc")


def _own_folders() -> tuple[str, ...]:
    """Return the folders of the user's own providers, that of the configuration first."""
    return _folders(os.getcwd(), os.path.join(config_folder(), "providers"))


@cache
def _folders(folder: str, first: str) -> tuple[str, ...]:
    folders = [first]
    while True:
        folders.append(os.path.join(folder, ".rlc", "providers"))
        above = os.path.dirname(folder)
        if above == folder:
            return tuple(filter(os.path.isdir, folders))
        folder = above


@cache
def _files(own: tuple[str, ...]) -> dict[str, str]:
    """Return the file of each provider. One that is there already keeps its name."""
    found: dict[str, str] = {}
    for folder in (_BUILT_IN, *own):
        for file in sorted(os.listdir(folder)):
            name, extension = os.path.splitext(file)
            if extension == ".json" and re.fullmatch(r"[A-Za-z]\w*", name) and name != LOCAL:
                found.setdefault(name, os.path.join(folder, file))
    return found


@cache
def _read(name: str, own: tuple[str, ...]) -> Provider | None:
    if (path := _files(own).get(name)) is None:
        return None
    said = {**_fields(path, own), "name": name}
    if name != TINKER and said.get("models") == CATALOGUE:
        said["models"] = None  # the catalogue's models and prices are those of Tinker alone
    fields = [key for key in field_names(Provider) if said.get(key) is not None]
    return Provider(**{"title": name} | {key: said[key] for key in fields})


def _fields(path: str, own: tuple[str, ...], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a file and of the one that it is ``like``. Raise ProviderError."""
    shown = path.removeprefix(os.path.join(os.getcwd(), ""))
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
        said = json.loads(text)
    except OSError as error:
        raise ProviderError(f"cannot read {shown}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        place = f"{shown}:{error.lineno}:{error.colno}"
        excerpt = text.split("\n")[error.lineno - 1].strip()
        raise ProviderError(f"{place}: this is not JSON: {error.msg}", excerpt or None) from error
    except UnicodeDecodeError as error:
        raise ProviderError(f"{shown}: this is not UTF-8") from error
    for where, what, hint in _mistakes(said):
        raise ProviderError(f"{shown}:{_line(text, where)}: {what}", hint)
    like = said.get("like")
    if like is None:
        return said  # type: ignore[no-any-return]
    other = _files(own).get(like)
    if other is None or other in (path, *seen):
        known = ", ".join(_files(own))
        raise ProviderError(
            f"{shown}:{_line(text, 'like')}: no provider `{like}` to be like", known
        )
    return {**_fields(other, own, (*seen, path)), **said}


def _line(text: str, name: str) -> int:
    """Return the number of the first line that names a field."""
    lines = text.splitlines()
    return next((n for n, line in enumerate(lines, 1) if f'"{name}"' in line), 1)


def _mistakes(said: Any) -> Iterator[tuple[str, str, str | None]]:
    """Yield the mistakes of a file: the name that they are about, what is wrong, and a hint."""
    if not isinstance(said, dict):
        yield "", "a provider is an object", 'such as { "title": "My lab", "url": "https://…" }'
        return
    known_fields = fields()
    for name, value in said.items():
        if name not in known_fields:
            near = nearest(name, tuple(known_fields))
            hint = f"did you mean `{near}`?" if near else f"it has {', '.join(known_fields)}"
            yield name, f"a provider has no `{name}`", hint
            continue
        kind, doc = known_fields[name]
        of, called = _TYPES[kind]
        whole = name == "models" and value == CATALOGUE
        fits = isinstance(value, of)
        if kind == "names" and isinstance(value, list):
            fits = all(isinstance(one, str) for one in value)
        if value is not None and not whole and not fits:
            yield name, f"`{name}` is {called}, found {json.dumps(value)}", doc
    for name, known in (("models", _OF_MODEL), ("only", _OF_ONLY)):
        tables = said.get(name)
        for key, entry in tables.items() if isinstance(tables, dict) else ():
            yield from _of_table(f"`{name}` of {key}", key, entry, known)
            if name == "only" and isinstance(entry, dict) and "values" not in entry:
                yield key, f"`only` of {key} has no `values`", known_fields["only"][1]
    for method, added in (said.get("arguments") or {}).items():
        if not isinstance(added, dict):
            found = json.dumps(added)
            yield method, f"`arguments` of {method} is an object, found {found}", None
    yield from _of_table("`prices`", "prices", said.get("prices") or {}, _OF_PRICES)
    if said.get("samples") not in (None, *_SAMPLES):
        listed = " or ".join(f"`{one}`" for one in _SAMPLES)
        yield "samples", f"`samples` is {listed}, or left out", known_fields["samples"][1]
    if not re.fullmatch(_SCHEME, said.get("scheme") or "tinker://"):
        yield "scheme", "`scheme` is not like `lab://`", known_fields["scheme"][1]
    if said.get("module") is not None and said.get("package") is None:
        yield "module", "`module` needs the `package` that it is of", known_fields["package"][1]


def _of_table(
    what: str, at: str, entry: Any, known: Mapping[str, Any]
) -> Iterator[tuple[str, str, str | None]]:
    if not isinstance(entry, dict):
        yield at, f"{what} is an object, found {json.dumps(entry)}", f"it has {', '.join(known)}"
        return
    for name, value in entry.items():
        if name not in known:
            yield at, f"{what} has no `{name}`", f"it has {', '.join(known)}"
        elif value is not None and (not isinstance(value, known[name]) or isinstance(value, bool)):
            yield at, f"`{name}` in {what} cannot be {json.dumps(value)}", None
        elif value == []:
            yield at, f"`{name}` in {what} is empty", None
        elif name == "as_of" and value and not re.fullmatch(DAY, value):
            yield at, f"`as_of` in {what} is a day, such as 2026-11-20; found {value}", None
        elif isinstance(value, int | float) and not 0 <= value < inf:
            yield at, f"`{name}` in {what} is {value:g}, and no number from 0 on", None


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


def asks_older_weights(stage: StagePlan) -> bool:
    """Return whether a stage asks others than the newest weights of its model."""
    return any(_of_newest(children_of(stage) or {}, "", bases=False))


def limits_of(parts: Mapping[str, Any], provider: Provider) -> Iterator[Lack]:
    """Yield what a provider cannot do of a stage, as far as its ``parts`` are known."""
    who = f"`{provider.name}`"
    for path, model in models_of(parts):
        yield from _of_model(path, model, provider)
    yield from _of_loss(parts.get("loss"), provider)
    for place in () if provider.soft_targets else _SOFT_TARGETS:
        what = f"{who} neither reports nor learns the most likely tokens of a teacher"
        instead = "leave `top_k` out: logprobs of sampled tokens will do"
        found = _found(parts, place.split("."))
        yield from (Lack(path, what, instead) for path, value in found if value is not None)
    if provider.samples is not None:
        yield from _of_newest(parts, who, bases=provider.samples == _OR_BASE)
    if not provider.tempered and isinstance(parts.get("loss"), LossPlan):
        what = f"{who} reports the model's own logprobs of samples, whatever drew them"
        drawn = parts.get("sampling")
        for name in drawn.shaping if drawn is not None else ():
            instead = "leave it out: the loss compares with the logprobs of the draw"
            yield Lack(f"sampling.{name}", what, instead)
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


def _of_newest(parts: Mapping[str, Any], who: str, *, bases: bool) -> Iterator[Lack]:
    """Yield what asks other weights than the newest; with ``bases`` not what asks a base model."""
    of_base = " and from base models" if bases else ""
    what = f"{who} samples from the newest weights of the model in training{of_base} alone"
    for path, state in asked_models(parts):
        if bases and state.after is None and state.model.weights is None:
            continue
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
