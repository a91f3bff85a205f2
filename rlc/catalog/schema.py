"""The JSON schema of a plan, generated from the plan tree and the catalogue.

Shapes and types are those of :mod:`rlc.plan.records`; names to choose from, bounds and what a value
means come from the catalogue's declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rlc.catalog.declarations import EVAL_FIELDS, MODEL_FIELDS, SFT_FIELDS, TRAIN_FIELDS
from rlc.catalog.index import BUILTINS, names_of
from rlc.catalog.records import Param
from rlc.plan.codec import STAGES, STEPS
from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan, StepPlan
from rlc.plan.records import (
    SCHEMA_VERSION,
    SERVICES,
    AdamPlan,
    AggregatePlan,
    BatchPlan,
    EvalPlan,
    KlPlan,
    LossPlan,
    MetricPlan,
    ModelPlan,
    Plan,
    SamplingPlan,
    SchedulePlan,
    SftPlan,
    TrackPlan,
    TrainPlan,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}

# Fields whose names are those of builtins: the kinds of the catalogue that they are of.
_NAMES: Mapping[tuple[type, str], str] = {
    (EnvPlan, "source"): "env",
    (StepPlan, "name"): "wrapper",
    (LossPlan, "name"): "loss",
    (AggregatePlan, "kind"): "aggregate",
    (MetricPlan, "name"): "metric",
    (TrackPlan, "name"): "tracker",
}


def plan_schema() -> Schema:
    """The schema of `rlc explain --out`, and of the plan.json of a run."""
    definitions: dict[str, Schema] = {}
    body = _record(Plan, definitions)
    body["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    body["properties"]["plan_hash"] = {
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "SHA-256 of everything but `recipe`, `provenance` and `made_from`",
    }
    body["properties"]["made_from"] = {
        "type": "object",
        "description": "the recipe and the options that the plan was compiled from",
    }
    body["required"].append("schema_version")
    return {
        "$schema": DIALECT,
        "title": "rlc plan",
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def _record(cls: type, definitions: dict[str, Schema]) -> Schema:
    """An object with exactly the fields of a record."""
    hints = get_type_hints(cls)
    documented = _documented(cls)
    properties = {
        name: _field(cls, name, hints[name], documented.get(name), definitions) for name in hints
    }
    required = [name for name in properties if not _has_default(cls, name)]
    described = {"description": " ".join((cls.__doc__ or "").split())} if cls.__doc__ else {}
    return {
        "type": "object",
        **described,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _has_default(cls: Any, name: str) -> bool:
    import attrs

    return next(a for a in attrs.fields(cls) if a.name == name).default is not attrs.NOTHING


def _field(
    cls: type, name: str, hint: Any, param: Param | None, definitions: dict[str, Schema]
) -> Schema:
    schema = _type(hint, definitions)
    if (cls, name) in _NAMES:
        schema = {"enum": names_of(_NAMES[cls, name])}
    if (cls, name) == (ModelPlan, "service"):
        schema = {"enum": list(SERVICES)}
    return schema | _from_catalogue(param, schema) if param is not None else schema


def _from_catalogue(param: Param, schema: Schema) -> Schema:
    """What the catalogue says of a value; its bounds hold for numbers."""
    said: Schema = {"description": param.doc}
    bounds = {
        "minimum": param.low,
        "maximum": param.high,
        "exclusiveMinimum": param.above,
        "exclusiveMaximum": param.below,
    }
    if schema.get("type") in ("integer", "number"):
        said |= {word: bound for word, bound in bounds.items() if bound is not None}
    return said


def _documented(cls: type) -> dict[str, Param]:
    """The parameters of the catalogue that become fields of a record, by the field's name."""
    params = list(_PARAMS.get(cls, ()))
    for name in _BUILTINS.get(cls, ()):
        params += next(builtin for builtin in BUILTINS if builtin.name == name).params
    renamed = _RENAMED.get(cls, {})
    return {renamed.get(param.name, param.name): param for param in params}


_PARAMS: Mapping[type, tuple[Param, ...]] = {
    ModelPlan: MODEL_FIELDS,
    TrainPlan: TRAIN_FIELDS,
    SftPlan: SFT_FIELDS,
    EvalPlan: EVAL_FIELDS,
}
_BUILTINS: Mapping[type, tuple[str, ...]] = {
    RolloutsPlan: ("rollouts",),
    RewardPlan: ("reward",),
    BatchPlan: ("groups", "turns"),
    SamplingPlan: ("sample",),
    AdamPlan: ("adam",),
    SchedulePlan: ("linear",),
    KlPlan: ("reference",),
}
_RENAMED: Mapping[type, Mapping[str, str]] = {
    BatchPlan: {"group_size": "size"},
    RolloutsPlan: {"group_size": "group"},
    TrainPlan: {"env": "envs"},
    EvalPlan: {"env": "envs"},
}


def _type(hint: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a type of the plan tree."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _type(args[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(args[1], definitions)}
    if origin in (UnionType, Union):
        return _union(args, definitions)
    return _reference(hint, definitions)


def _union(args: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    """A value that may be null, or one of several records that a tag distinguishes."""
    if NoneType in args:
        others = [arg for arg in args if arg is not NoneType]
        some = (
            _type(others[0], definitions)
            if len(others) == 1
            else _union(tuple(others), definitions)
        )
        if set(some) == {"type"}:
            return {"type": [some["type"], "null"]}
        return {"anyOf": [some, {"type": "null"}]}
    for tag, classes in (("step", STEPS), ("kind", STAGES)):
        if set(args) == set(classes.values()):
            return {"oneOf": [_tagged(tag, n, cls, definitions) for n, cls in classes.items()]}
    raise TypeError(f"the codec has no tag for {args}")


def _tagged(tag: str, name: str, cls: type, definitions: dict[str, Schema]) -> Schema:
    """A record with the tag that the codec writes beside its fields."""
    reference = _reference(cls, definitions)
    definition = definitions[cls.__name__]
    definition["properties"] = {tag: {"const": name}, **definition["properties"]}
    definition["required"] = list(dict.fromkeys([tag, *definition["required"]]))
    return reference


def _reference(cls: Any, definitions: dict[str, Schema]) -> Schema:
    """A record, defined once. Raises TypeError for what is no record."""
    if not hasattr(cls, "__attrs_attrs__"):
        raise TypeError(f"a plan has no values of type {cls!r}")
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # before its parts, which may hold it
        definitions[cls.__name__] = _record(cls, definitions)
    return {"$ref": f"#/$defs/{cls.__name__}"}
