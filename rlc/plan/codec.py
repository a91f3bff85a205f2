"""Plans as JSON, without loss, and their content hash."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from attrs import fields, has, resolve_types

from rlc.algo import (
    AdvantageScheme,
    AdvantageStep,
    Baseline,
    Clip,
    Program,
    Returns,
    RunningBaseline,
    Scale,
    WeightedSum,
    scheme_of_returns,
    validate,
    with_step,
)
from rlc.errors import Error
from rlc.plan.environments import EnvPlan, RewardPlan
from rlc.plan.expectations import ExpectationPlan
from rlc.plan.graph import Graph, build_graph
from rlc.plan.parts import LossPlan, PreferenceLossPlan
from rlc.plan.records import SCHEMA_VERSION, Plan
from rlc.plan.sources import DATA, AnyData
from rlc.plan.stages import (
    OBJECTIVES,
    SOURCES,
    Evaluation,
    FromData,
    Objective,
    Source,
    StagePlan,
    Training,
)
from rlc.records import evolve

OLDER = (3, 4, 5)  # the schemas that are read beside today's

_OF_FILES = ("path", "split", "count", "max_tokens", "too_long")
# The fields of each kind of data, of which schema 3 had one record with all of them.
_DATA = {
    "demonstrations": ("env", "count", "policy", "min_reward"),
    "rows": (*_OF_FILES, "prompt", "reply"),
    "chats": (*_OF_FILES, "messages", "train_on"),
    "cookbook": ("builder", "args", "split", "count", "max_tokens", "too_long"),
    "pairs": (*_OF_FILES, "prompt", "chosen", "rejected"),
    "labelled": (*_OF_FILES, "prompt", "reply", "label"),
    "preferred": ("env", "count", "model", "samples"),
}


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a plan of an older schema in today's; what is malformed is left as it is.
    How its chats went on is not in it: see :func:`rlc.catalog.with_older_histories`."""
    stages = data.get("stages")
    if isinstance(stages, list) and data["schema_version"] == 3:
        stages = [_stage(one) if isinstance(one, Mapping) else one for one in stages]
    return {**data, "schema_version": SCHEMA_VERSION, "stages": stages}


def _stage(stage: Mapping[str, Any]) -> Mapping[str, Any]:
    def part(kind: str, *names: str) -> dict[str, Any]:
        """Return a part of the stage, whose fields are taken out of the stage."""
        return {"kind": kind} | {name: rest.pop(name) for name in names if name in rest}

    rest, kind = dict(stage), stage.get("kind")
    if kind == "eval":
        return {**rest, "kind": "evaluation"}
    if kind == "train":
        of_sampling = ("sampling", "overlap", "on_error", "give_up", "kl_guard")
        source = part("rollouts", "envs", "batch", *of_sampling)
        objective = part("policy_gradient", "advantage", "aggregate", "loss", "kl", "teacher")
        objective["kl"] = _kl(objective.get("kl"), rest.get("model"))
    elif kind in ("sft", "preference"):
        source = {"kind": "from_data", "data": _data(rest.pop("data", None))}
        source |= {"batch": rest.pop("batch", None)}
        objective = {"kind": "likelihood"}
        if kind == "preference":
            loss = rest.get("loss")
            labelled = isinstance(loss, Mapping) and loss.get("name") == "kto"
            word = "labelled" if labelled else "pairwise"
            objective = part(f"{word}_preference", "loss", "reference")
        if rest.get("heldout") is not None:
            rest["heldout"] = _data(rest["heldout"])
    else:
        return stage
    return {**rest, "kind": "training", "source": source, "objective": objective}


def _kl(kl: Any, model: Any) -> Any:
    """Return a penalty, whose reference was a base model or the path of a saved state."""
    if not isinstance(kl, Mapping) or not isinstance(model, Mapping):
        return kl
    name = str(kl.get("reference"))
    own = name == model.get("base")
    known = {"base": name, "weights": None}
    if "://" in name:
        known = {"base": model.get("base"), "weights": name}
    other = {**model, "name": f"{model.get('name')}.base" if own else name, **known}
    return {**kl, "reference": {"model": other, "after": None}}


def _data(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    kind = str(data.get("kind"))
    if kind == "samples" and isinstance(data.get("sampled"), Mapping):
        own = {name: data.get(name) for name in ("env", "count", "top_k")}
        return {"kind": kind, **own, **data["sampled"]}
    return {"kind": kind} | {name: data.get(name) for name in _DATA.get(kind, data)}


STEPS = {
    "baseline": Baseline,
    "scale": Scale,
    "clip": Clip,
    "weighted_sum": WeightedSum,
    "running_baseline": RunningBaseline,
}


def _tags(*classes: type) -> dict[str, type]:
    """Return classes by their names in JSON: ``policy_gradient``."""
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in classes}


# The unions, each with its tag in JSON, in the order in which the codec has to know them.
UNIONS: tuple[tuple[Any, str, Mapping[str, type]], ...] = (
    (AnyData, "kind", DATA),
    (AdvantageStep, "step", STEPS),
    (Source, "kind", _tags(*SOURCES)),
    (Objective, "kind", _tags(*OBJECTIVES)),
    (StagePlan, "kind", _tags(Training, Evaluation)),
)
_WORDS = dict(zip(_tags(*OBJECTIVES), [kind.word for kind in OBJECTIVES], strict=True))
# Names in the types of records whose module does not import them: a check needs none of them.
LATE = {one.__name__: one for one in (ExpectationPlan, Graph, Program)} | {
    "AnyData": AnyData,
    "StagePlan": StagePlan,
}


class PlanFormatError(Error, ValueError):
    """Data that is not a plan; the message says where and why."""


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return a plan as data for JSON."""
    data: dict[str, Any] = _converter().unstructure(plan)
    return data


def plan_from_dict(data: object) -> Plan:
    """Return the plan that :func:`plan_to_dict` wrote. Raise PlanFormatError if it is not one."""
    if not isinstance(data, Mapping):
        raise PlanFormatError("a plan is a JSON object")
    version = data.get("schema_version")
    if version in OLDER:
        data = upgraded(data)
    elif version != SCHEMA_VERSION:
        raise PlanFormatError(
            f"schema_version is {version!r}, and this version of rlc reads {SCHEMA_VERSION}"
        )
    from cattrs import transform_error

    try:
        plan: Plan = _converter().structure(data, Plan)
    except Exception as error:  # cattrs raises many kinds
        raise PlanFormatError("; ".join(transform_error(error, path="plan"))) from error
    # The graph has the models that each stage asks, of which an older version knew less.
    return evolve(plan, graph=build_graph(plan.stages)) if version in OLDER else plan


def expectations_from_dict(data: Mapping[str, Any]) -> tuple[ExpectationPlan, ...]:
    """Return the expectations in a plan's JSON. Raise PlanFormatError if they are malformed."""
    try:
        given = data.get("expectations", ())
        return tuple(_converter().structure(one, ExpectationPlan) for one in given)
    except Exception as error:  # cattrs raises many kinds
        raise PlanFormatError(f"its expectations are not those of a plan: {error}") from error


def word_of(stage: Mapping[str, Any]) -> str:
    """Return the word that a stage in a plan's JSON, of any version, is declared with."""
    if "objective" in stage:
        return _WORDS[stage["objective"]["kind"]]
    return Evaluation.kind if stage["kind"] == "evaluation" else str(stage["kind"])


def plan_hash(plan: Plan) -> str:
    """Return the :func:`content_hash` of a plan."""
    return content_hash(plan_to_dict(plan))


def content_hash(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a plan's JSON without its recipe, provenance, prices and players."""
    content = {key: data[key] for key in data if key not in ("recipe", "provenance")}
    content = _without_asides(content)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode("ascii")).hexdigest()


def _without_asides(data: Any) -> Any:
    """Return a plan's JSON without what changes no number of a run: prices, and players."""
    if isinstance(data, Mapping):
        left_out = "price" if "lora_rank" in data else "players" if "envs" in data else None
        return {key: _without_asides(one) for key, one in data.items() if key != left_out}
    return [_without_asides(one) for one in data] if isinstance(data, (list, tuple)) else data


def provenance_hash(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the provenance in a plan's JSON."""
    text = json.dumps(data.get("provenance", {}), sort_keys=True, ensure_ascii=True)
    return sha256(text.encode("ascii")).hexdigest()


def _with_graders(data: Any) -> Any:
    """Return an environment of a plan's JSON, whose grader may be an argument, as it once was."""
    args = data.get("args") if isinstance(data, Mapping) else None
    if not isinstance(args, dict) or "grader" not in args:
        return data
    args = dict(args)
    name, function, pattern = (args.pop(k, None) for k in ("grader", "grade_with", "pattern"))
    own = {"function": function, "weights": {}} if name == "python" else {"pattern": pattern}
    grader = {
        "name": "correct",
        "weight": 1.0,
        "grader": "grade_with" if name == "python" else name,
        "args": own if name in ("python", "regex") else {},
    }
    return {**data, "args": args, "graders": [grader]}


@cache
def _converter() -> Any:
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
    from cattrs.strategies import configure_tagged_union

    for record in (Plan, LossPlan, PreferenceLossPlan, RewardPlan, FromData, Training, Evaluation):
        resolve_types(record, {**vars(sys.modules[record.__module__]), **LATE})
    converter = Converter(forbid_extra_keys=True)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly)
    converter.register_unstructure_hook(float, float)  # a recipe may say 1: equal, but other JSON
    env = make_dict_structure_fn(EnvPlan, converter, _cattrs_forbid_extra_keys=True)
    converter.register_structure_hook(EnvPlan, lambda data, cls: env(_with_graders(data), cls))

    def without_empty_defaults(cls: Any) -> Any:
        """Leave out a value that is its default and empty: a new field changes no older hash."""
        empty = [a.name for a in fields(cls) if a.default in (None, ()) or a.default is False]
        omitted: Any = dict.fromkeys(empty, override(omit_if_default=True))
        return make_dict_unstructure_fn(cls, converter, **omitted)

    converter.register_unstructure_hook_factory(has, without_empty_defaults)
    program = make_dict_structure_fn(Program, converter, _cattrs_forbid_extra_keys=True)

    def valid(data: Any, cls: type) -> Program:
        if isinstance(data, Mapping) and data.get("kind") == "reward":
            data = {**data, "shape": "episode"}  # in an older plan it is a number
        loaded: Program = program(data, cls)
        validate(loaded)
        return loaded

    converter.register_structure_hook(Program, valid)
    scheme = make_dict_structure_fn(AdvantageScheme, converter, _cattrs_forbid_extra_keys=True)

    def formulated(data: Any, cls: type) -> AdvantageScheme:
        """Return a scheme, of an older plan one of returns and steps."""
        if not (isinstance(data, Mapping) and "returns" in data):
            known: AdvantageScheme = scheme(data, cls)
            return known
        unit = converter.structure(data["returns"], Returns)
        made = scheme_of_returns(str(data["name"]), unit, data["constant"])
        for step in converter.structure(data["steps"], tuple[AdvantageStep, ...]):
            made = with_step(made, step)
        return made

    converter.register_structure_hook(AdvantageScheme, formulated)
    data: Any = AnyData
    converter.register_unstructure_hook(  # cattrs takes it for another union
        data | None, lambda one: None if one is None else converter.unstructure(one, data)
    )
    converter.register_structure_hook(
        data | None, lambda one, _: None if one is None else converter.structure(one, data)
    )
    for union, tag, classes in UNIONS:
        names = {cls: name for name, cls in classes.items()}
        configure_tagged_union(union, converter, tag_name=tag, tag_generator=names.__getitem__)
    return converter


def _exactly(value: Any, kind: type) -> Any:
    """Return a plain value of the right type: nothing is converted, except an int to a float."""
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise ValueError(f"expected {kind.__name__}, found {value!r}")
