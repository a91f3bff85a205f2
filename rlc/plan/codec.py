"""Plans as JSON, without loss, and their content hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from rlc.algo.scheme import AdvantageStep, Baseline, Clip, Scale
from rlc.errors import Error
from rlc.plan.records import SCHEMA_VERSION, EvalPlan, Plan, SftPlan, StagePlan, TrainPlan

# The unions of a plan: the tag that tells their records apart, `step` and `kind`.
STEPS = {"baseline": Baseline, "scale": Scale, "clip": Clip}
STAGES = {"train": TrainPlan, "sft": SftPlan, "eval": EvalPlan}
_NOT_CONTENT = ("recipe", "provenance")


class PlanFormatError(Error, ValueError):
    """Data that is not a plan; the message says where and why."""


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Plain data for JSON."""
    data: dict[str, Any] = _converter().unstructure(plan)
    return data


def plan_from_dict(data: object) -> Plan:
    """Return the plan that :func:`plan_to_dict` wrote. Raise PlanFormatError if it is not one."""
    if not isinstance(data, Mapping):
        raise PlanFormatError("a plan is a JSON object")
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise PlanFormatError(
            f"schema_version is {version!r}, and this version of rlc reads {SCHEMA_VERSION}"
        )
    from cattrs import transform_error

    try:
        plan: Plan = _converter().structure(data, Plan)
    except Exception as error:  # cattrs raises many kinds
        raise PlanFormatError("; ".join(transform_error(error, path="plan"))) from error
    return plan


def plan_hash(plan: Plan) -> str:
    """SHA-256 of what will be done: everything but the recipe's name and provenance."""
    content = {key: v for key, v in plan_to_dict(plan).items() if key not in _NOT_CONTENT}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@cache
def _converter() -> Any:
    from cattrs import Converter
    from cattrs.strategies import configure_tagged_union

    converter = Converter(forbid_extra_keys=True)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly)
    for union, tag, classes in (
        (AdvantageStep, "step", STEPS),
        (StagePlan, "kind", STAGES),
    ):
        names: dict[Any, str] = {cls: name for name, cls in classes.items()}
        configure_tagged_union(union, converter, tag_name=tag, tag_generator=names.__getitem__)
    return converter


def _exactly(value: Any, kind: type) -> Any:
    """A plain value of the right type: nothing is converted, an int as a float excepted."""
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise ValueError(f"expected {kind.__name__}, found {value!r}")
