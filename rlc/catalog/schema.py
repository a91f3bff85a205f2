"""The JSON schema of a plan, generated from the plan tree and the catalogue.

Shapes and types are those of :mod:`rlc.plan.records`; names to choose from, bounds and what a value
means come from the catalogue's declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING

from rlc.catalog.declarations import DECLARATIONS, EVAL, MODEL_FIELDS, TRAINING
from rlc.catalog.index import BUILTINS, names_of
from rlc.catalog.providers import provider_names
from rlc.catalog.records import Param
from rlc.plan import (
    DATA,
    LATE,
    OBJECTIVES,
    SCHEMA_VERSION,
    UNIONS,
    AdamPlan,
    AggregatePlan,
    AnyJudge,
    Asked,
    BatchPlan,
    EnvPlan,
    Evaluation,
    FromData,
    GraderPlan,
    KlPlan,
    Likelihood,
    LossPlan,
    MetricPlan,
    ModelPlan,
    PastPlan,
    Plan,
    PlayPlan,
    PolicyGradient,
    RewardPlan,
    Rollouts,
    RolloutsPlan,
    SamplingPlan,
    SchedulePlan,
    ScriptPlan,
    StepPlan,
    TrackPlan,
    Training,
)
from rlc.records import fields

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}

# Fields whose names are those of builtins: the kinds of the catalogue that they are of.
_NAMES: Mapping[tuple[type, str], str] = {
    (EnvPlan, "source"): "env",
    (StepPlan, "name"): "wrapper",
    (GraderPlan, "grader"): "grader",
    (ScriptPlan, "player"): "opponent",
    (AggregatePlan, "kind"): "aggregate",
    (MetricPlan, "name"): "metric",
    (TrackPlan, "name"): "tracker",
}


def _params(*names: str) -> tuple[Param, ...]:
    return tuple(p for builtin in BUILTINS if builtin.name in names for p in builtin.params)


# The parameters of the catalogue that become fields of a record.
_PARAMS: Mapping[type, tuple[Param, ...]] = {
    ModelPlan: MODEL_FIELDS,
    Training: tuple(p for k in TRAINING for p in DECLARATIONS[k].fields),
    Evaluation: DECLARATIONS[EVAL].fields,
    **{kind: DECLARATIONS[kind.word].fields for kind in OBJECTIVES},
    Rollouts: DECLARATIONS[PolicyGradient.word].fields,
    FromData: DECLARATIONS[Likelihood.word].fields,
    **{kind: _params(word) for word, kind in DATA.items()},
    RolloutsPlan: _params("rollouts"),
    PlayPlan: _params("play"),
    PastPlan: _params("past"),
    ScriptPlan: _params("scripted"),
    RewardPlan: _params("reward"),
    BatchPlan: _params("groups", "turns"),
    SamplingPlan: _params("sample"),
    AdamPlan: _params("adam"),
    SchedulePlan: _params("linear"),
    KlPlan: _params("reference"),
}
# Those that a record calls otherwise.
_FIELDS: Mapping[type, Mapping[str, str]] = {
    BatchPlan: {"group_size": "size"},
    RolloutsPlan: {"group_size": "group"},
    Rollouts: {"env": "envs"},
    Evaluation: {"env": "envs"},
}


def plan_schema() -> Schema:
    """Return the schema of `rlc explain --out`, and of the plan.json of a run."""
    generator = _Generator()
    body = generator.record(Plan)
    digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    content = "SHA-256 of everything but `recipe`, `provenance` and `made_from`"
    start = "paths start at the folder of `recipe`, and `recipe` at that of this file"
    source = "the recipe and the options that the plan was compiled from"
    body["properties"] |= {
        "schema_version": {"const": SCHEMA_VERSION},
        "plan_hash": {**digest, "description": content},
        "provenance_hash": {**digest, "description": "SHA-256 of `provenance`"},
        "paths_start_at": {"const": "recipe", "description": start},
        "made_from": {"type": "object", "description": source},
    }
    body["required"].append("schema_version")
    return {
        "$schema": DIALECT,
        "title": "rlc plan",
        **body,
        "$defs": dict(sorted(generator.definitions.items())),
    }


class _Generator:
    """Makes the schemas of types; those of records are in ``definitions``, each by its name."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def record(self, cls: type) -> Schema:
        """Return the schema of an object with exactly the fields of a record."""
        hints = get_type_hints(cls, localns=LATE)
        renamed = _FIELDS.get(cls, {})
        params = {renamed.get(param.name, param.name): param for param in _PARAMS.get(cls, ())}
        names = [field.name for field in fields(cls)]
        properties = {name: self._field(cls, name, hints[name], params.get(name)) for name in names}
        required = [field.name for field in fields(cls) if field.default is NOTHING]
        more: Schema = {}
        if cls is LossPlan:  # one of the service's, or a recipe's own
            named = {"properties": {"name": {"enum": names_of("loss")}}}
            own = {"properties": {"program": {"type": "object"}}, "required": ["program"]}
            more = {"anyOf": [named, own]}
        described = {"description": " ".join((cls.__doc__ or "").split())} if cls.__doc__ else {}
        return {
            "type": "object",
            **described,
            "properties": properties,
            "required": required,
            "additionalProperties": False,
            **more,
        }

    def _field(self, cls: type, name: str, hint: Any, param: Param | None) -> Schema:
        """Return the schema of a field, with its text and bounds in the catalogue."""
        schema = self._type(hint)
        if (cls, name) in _NAMES:
            schema = {"enum": names_of(_NAMES[cls, name])}
        if (cls, name) == (ModelPlan, "service"):
            schema = {"enum": list(provider_names())}
        if param is None:
            return schema
        known: Schema = {"description": param.doc}
        if schema.get("type") in ("integer", "number"):
            known |= {"minimum": param.low, "maximum": param.high}
            known |= {"exclusiveMinimum": param.above, "exclusiveMaximum": param.below}
        return {**schema, **{word: value for word, value in known.items() if value is not None}}

    def _type(self, hint: Any) -> Schema:
        """Return the schema of a type of the plan tree."""
        origin, args = get_origin(hint), get_args(hint)
        if hint is Any:
            return {}
        if hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        if origin is Literal:
            return {"enum": list(args)}
        if origin in (tuple, list):
            return {"type": "array", "items": self._type(args[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._type(args[1])}
        if origin in (UnionType, Union):
            return self._union(args)
        return self._reference(hint)

    def _union(self, args: tuple[Any, ...]) -> Schema:
        """Return the schema of a value that may be null, or one of several records with a tag."""
        if NoneType in args:
            others = [arg for arg in args if arg is not NoneType]
            some = self._type(others[0]) if len(others) == 1 else self._union(tuple(others))
            if set(some) == {"type"}:
                return {"type": [some["type"], "null"]}
            return {"anyOf": [some, {"type": "null"}]}
        for _, tag, classes in UNIONS:
            if set(args) == set(classes.values()):
                return {"oneOf": [self._tagged(tag, n, cls) for n, cls in classes.items()]}
        if set(args) in (set(get_args(Asked)), set(get_args(AnyJudge))):  # told apart by fields
            return {"anyOf": [self._reference(cls) for cls in args]}
        raise TypeError(f"the codec has no tag for {args}")

    def _tagged(self, tag: str, name: str, cls: type) -> Schema:
        """Return the schema of a record with the tag that the codec writes beside its fields."""
        reference = self._reference(cls)
        definition = self.definitions[cls.__name__]
        definition["properties"] = {tag: {"const": name}, **definition["properties"]}
        definition["required"] = list(dict.fromkeys([tag, *definition["required"]]))
        return reference

    def _reference(self, cls: Any) -> Schema:
        """Return a reference to a record, defined once. Raise TypeError if it is not a record."""
        if not hasattr(cls, "__attrs_attrs__"):
            raise TypeError(f"a plan has no values of type {cls!r}")
        if cls.__name__ not in self.definitions:
            self.definitions[cls.__name__] = {}  # before its parts, which may hold it
            self.definitions[cls.__name__] = self.record(cls)
        return {"$ref": f"#/$defs/{cls.__name__}"}
