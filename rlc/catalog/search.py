"""The catalogue as something to look things up in: one entry for everything the language knows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from rlc.algo import INPUTS, OPERATIONS
from rlc.catalog.aliases import aliases_of
from rlc.catalog.builtins.advantages import UNSUPPORTED
from rlc.catalog.builtins.sources import PROBLEM_SETS
from rlc.catalog.builtins.wrappers import TEMPLATES
from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.facts import (
    BaseModelFacts,
    find_model,
    gem_facts,
    gem_ids,
    gem_signature,
    is_broken,
    library,
    model_names,
    recommended_rate,
    retired_models,
)
from rlc.catalog.index import BUILTINS, KINDS
from rlc.catalog.providers import ProviderError, provider, provider_names
from rlc.catalog.records import Builtin, Declaration, Param
from rlc.lang import code_titles
from rlc.plan import UNKNOWN
from rlc.records import asdict, field, frozen, has


def example_of(item: Builtin) -> str:
    """Return a declaration with a builtin in it; `…` stands for its other fields."""
    declaration, param = place_of(item.kind)
    value = f"[{item.usage()}]" if param.many else item.usage()
    fields = item.example or f"{param.name} = {value}"
    is_stage = declaration.traits is not None
    body = textwrap.indent(f"{fields}\n…" if is_stage else fields, "  ")
    return f"{declaration.kind} {'main' if is_stage else 'tried'} {{\n{body}\n}}"


def example_of_declaration(item: Declaration) -> str:
    """Return a declaration as a recipe has it."""
    if item.is_block:
        return f"{item.kind} tried {{\n{textwrap.indent(_aligned(item.example), '  ')}\n}}"
    if item.example or item.form is not None:
        return item.example or str(item.form)
    assert item.value is not None
    return f"{item.kind} tried = {KINDS[item.value].example}"


def _aligned(fields: str) -> str:
    """Return fields, one a line, as the formatter sets them."""
    pairs = [line.split(" = ", 1) for line in fields.splitlines()]
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:{width}} = {value}" for name, value in pairs)


@cache
def place_of(kind: str) -> tuple[Declaration, Param]:
    """Return the declaration and field where a kind of thing stands, or what it is part of."""
    found = [
        (declaration, param)
        for declaration in DECLARATIONS.values()
        for param in declaration.fields
        if kind in (param.type, param.also)
    ]
    if found:  # best where it has to stand, and in `train`
        return min(found, key=lambda place: (not place[1].required, place[0].kind != "train"))
    parts = [other.name for other in KINDS.values() if kind in (other.step, other.before_then)]
    parts += [item.kind for item in BUILTINS if any(kind in (p.type, p.also) for p in item.params)]
    return place_of(next(part for part in parts if part != kind))


# What there is beside the kinds of builtins.
OTHER_KINDS = {
    "declaration": "what a recipe is made of",
    "input": "what an expression can read",
    "function": "what an expression can do",
    "base": "models that can be trained",
    "service": "where they are trained: the embedded engine and providers",
    "environment": "environments of GEM, for gem(id)",
    "problems": "sets of problems, for problems(data)",
    "prompt": "prompt templates, for template(name)",
    "unsupported": "known elsewhere, not possible here",
    "code": "findings of the checker, explained by `rlc explain CODE`",
}

# Those of them that recipes name by strings.
BY_STRING = ("base", "environment", "problems", "prompt")


@frozen
class NameEntry:
    """One thing that a recipe can name. ``reason``: why one that is known elsewhere is not possible
    here; ``facts``: what else is known, by name."""

    kind: str
    name: str
    doc: str
    usage: str = ""
    params: tuple[Param, ...] = ()
    formula: tuple[str, ...] = ()
    example: str = ""
    facts: dict[str, Any] = field(factory=dict)
    reason: str | None = None


@cache
def entries() -> tuple[NameEntry, ...]:
    """Return everything, kind by kind."""
    return tuple(_entries())


def _entries() -> Iterator[NameEntry]:
    for each in DECLARATIONS.values():
        example = example_of_declaration(each)
        yield NameEntry(
            "declaration", each.kind, each.doc, each.written(), each.fields, (), example
        )
    for b in (b for kind in KINDS for b in BUILTINS if b.kind == kind):
        yield NameEntry(b.kind, b.name, b.doc, b.usage(), b.params, b.formulas(), example_of(b))
    for kind, inputs in INPUTS.items():
        for item in inputs.values():
            facts = {"of a": kind, "is one": f"each {item.shape}"}
            yield NameEntry("input", item.name, item.doc, facts=facts)
    for operation in OPERATIONS.values():
        if operation.usage.startswith(operation.name):
            yield NameEntry("function", operation.name, operation.doc, operation.usage)
    yield from map(_model, model_names())
    for name, retired in retired_models().items():
        reason = f"not trained any more since {retired.since}; the nearest is {retired.use}"
        yield NameEntry("base", name, "retired", reason=reason)
    yield from map(_service, provider_names())
    yield from map(_environment, gem_ids())
    for name, known in PROBLEM_SETS.items():
        sizes = {
            f"split {split}": f"{size:,} tasks" if size else "tasks without end"
            for split, size in known.splits.items()
        }
        doc = f"questions with answers; splits {', '.join(known.splits)}"
        yield NameEntry("problems", name, doc, f'problems("{name}")', facts=sizes)
    for name in TEMPLATES:
        yield NameEntry("prompt", name, "a prompt template", f"template({name})")
    for name, reason in UNSUPPORTED.items():
        yield NameEntry("unsupported", name, OTHER_KINDS["unsupported"], reason=reason)
    for code, title in code_titles().items():
        yield NameEntry("code", code, title, f"rlc explain {code}")


def kinds() -> dict[str, str]:
    """Return every kind of entry, and what it is in words."""
    known = {entry.kind for entry in entries()}
    nouns = {name: kind.noun for name, kind in KINDS.items() if name in known}
    return {"declaration": OTHER_KINDS["declaration"], **nouns, **OTHER_KINDS}


def find(term: str, among: Sequence[NameEntry]) -> list[NameEntry]:
    """Return the entries that ``term`` may mean, the best first: by name, its beginning, that of a
    word in it, text, and parameters; or else those with it inside of a word: Minesweeper, sweep."""
    wanted = term.lower().rstrip("()")
    ranked = [(rank, entry) for entry in among if (rank := _rank(wanted, entry)) is not None]
    ranked.sort(key=lambda pair: pair[0])
    return [entry for _, entry in ranked] or [e for e in among if wanted in e.name.lower()]


def related(named: Sequence[NameEntry], found: Sequence[NameEntry]) -> list[NameEntry]:
    """Return the other entries that were found, those of the kinds of the ``named`` ones first;
    then the values of their parameters, and others of their kinds."""
    kinds = {entry.kind for entry in named}
    taken = {param.type for entry in named for param in entry.params}
    every = sorted(found, key=lambda entry: entry.kind not in kinds)
    every += [entry for wanted in (taken, kinds) for entry in entries() if entry.kind in wanted]
    others = (each for each in every if each not in named and each.reason is None)
    return list({(each.kind, each.name): each for each in others}.values())


def words(among: Sequence[NameEntry]) -> list[str]:
    """Return the names and the words in them, as candidates for a mistyped one."""
    names = [entry.name for entry in among]
    parts = [part for name in names for part in re.split(r"[\W_]+", name) if len(part) > 3]
    return list(dict.fromkeys([*names, *parts]))


def as_data(entry: NameEntry) -> dict[str, Any]:
    """Return an entry as data for JSON; the ``default`` of a ``required`` parameter is None."""
    params = [
        {
            **{name: getattr(param, name) for name in ("name", "type", "doc", "required")},
            "default": plain_default(param),
            **{bound: getattr(param, bound) for bound in ("low", "high", "above", "below")},
            "choices": param.all_choices(),
            "many": param.many,
            "named": param.named,
        }
        for param in entry.params
    ]
    return {**asdict(entry, recurse=False), "params": params}


def plain_default(param: Param) -> Any:
    """Return a default as data: a record as its fields; None if there is no default."""
    if isinstance(param.default, tuple):
        return [asdict(item) for item in param.default]
    if param.required:
        return None
    return asdict(param.default) if has(type(param.default)) else param.default


def is_named(term: str, entry: NameEntry) -> bool:
    """Return whether ``term`` is the name of an entry."""
    return entry.name.lower() == term.lower().rstrip("()")


def _rank(wanted: str, entry: NameEntry) -> int | None:
    name = entry.name.lower()
    if name == wanted:
        return 0
    if name.startswith(wanted):
        return 1
    begins = re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}")
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", entry.name).lower()
    if begins.search(name) or begins.search(apart):
        return 2
    text = " ".join([entry.doc, *entry.formula, *map(str, entry.facts.values())]).lower()
    if begins.search(text):
        return 3
    takes = any(wanted in {p.name.lower(), *aliases_of(p)} for p in entry.params)
    return 4 if takes else None


def _model(name: str) -> NameEntry:
    model = find_model(name)
    assert model is not None
    facts: dict[str, Any] = {
        "service": model.service,
        "context": UNKNOWN if model.context is None else f"{model.context:,} tokens",
        "renderers": ", ".join(model.renderers),
        **_prices(model),
    }
    if model.max_rank is not None:
        facts["largest LoRA rank"] = model.max_rank
    if model.lora is not None:
        facts["LoRA parameters at rank 32"] = f"{32 * sum(model.lora):,}"
    if (rate := recommended_rate(name)) is not None:
        facts["recommended rate"] = f"{rate:.3g} (get_lr of tinker-cookbook); RL: a tenth of it"
    if model.unconfirmed:
        facts["not confirmed"] = ", ".join(model.unconfirmed)
    doc = "comes with rlc, trained on this machine"
    if model.hosted:
        sample, train = map(_dollars, (model.price.sample, model.price.train))
        costs = f"sample {sample}, train {train} per million tokens"
        doc = f"on Tinker, context {facts['context']}, {costs}"
    return NameEntry("base", name, doc, f'model policy {{ base = "{name}" }}', facts=facts)


def _service(name: str) -> NameEntry:
    try:
        there = provider(name)
    except ProviderError as error:
        return NameEntry("service", name, "cannot be used", reason=str(error))
    facts: dict[str, Any] = {"client": there.module or "the SDK `tinker`"}
    facts |= {"address": there.url, "key": there.key, "models": ", ".join(there.model_names)}
    facts |= {"losses": ", ".join(there.losses or ()), "prices": there.priced}
    facts |= {"tried": there.tried, "as of": there.as_of, "source": there.source}
    facts = {what: known for what, known in facts.items() if known} if there.hosted else {}
    blocked = there.blocked and f"rlc does not run on it: {there.blocked}"
    return NameEntry("service", name, there.title, f"service = {name}", facts=facts, reason=blocked)


def _prices(model: BaseModelFacts) -> dict[str, str]:
    if not model.hosted:
        return {"price": "free"}
    return {
        f"{kind} price": UNKNOWN if usd is None else f"{_dollars(usd)} per million tokens"
        for kind, usd in asdict(model.price).items()
    }


def _dollars(usd: float | None) -> str:
    return UNKNOWN if usd is None else f"${usd:g}"


def _environment(env_id: str) -> NameEntry:
    facts = gem_facts(env_id)
    chars = facts["chars"] or {}
    known: dict[str, Any] = {
        "class": facts["class"],
        "turns": "several" if facts["multi_turn"] else "one",
        "library": library(),
    }
    if "prompt" in chars:
        known["first prompt"] = f"about {chars['prompt'][0]:,} characters"
    if facts["needs"]:
        known["needs"] = ", ".join(facts["needs"])
    doc = "several turns" if facts["multi_turn"] else "one question, one answer"
    reason = f"{library()} registers it but cannot make it" if is_broken(env_id) else None
    usage, params = f'gem("{env_id}")', gem_signature(env_id).params
    return NameEntry("environment", env_id, doc, usage, params, facts=known, reason=reason)
