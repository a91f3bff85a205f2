"""The JSON schema of a plan: what is written obeys it, and what is no plan does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

import pytest
from plan_recipes import EVERYTHING, RECIPE_FILES, RECIPE_TEXTS, planned

import rlc
from rlc.catalog.index import names_of
from rlc.catalog.schema import plan_schema
from rlc.compile.variants import rehearse
from rlc.plan.codec import plan_to_dict

SCHEMA = json.loads(json.dumps(plan_schema()))
TEXTS = [EVERYTHING, *RECIPE_TEXTS.values()]

_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}


_OUTSIDE = {"minimum": lt, "maximum": gt, "exclusiveMinimum": le, "exclusiveMaximum": ge}


def problems(data: Any, schema: Any, path: str = "plan") -> Iterator[str]:
    """Where data break a schema: the words of JSON Schema that the plan's schema uses."""
    known = {
        *("$ref", "$defs", "$schema", "title", "description", "type", "properties", "required"),
        *("additionalProperties", "items", "enum", "const", "anyOf", "oneOf", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        yield from problems(data, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
        return
    for word, fitting in (("anyOf", range(1, 99)), ("oneOf", range(1, 2))):
        if word in schema:
            fits = sum(not list(problems(data, option, path)) for option in schema[word])
            if fits not in fitting:
                yield f"{path}: {fits} of the options fit"
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is(data, kind) for kind in kinds):
            yield f"{path}: {data!r} is not {kinds}"
            return
    if "enum" in schema and data not in schema["enum"]:
        yield f"{path}: {data!r} is not one of {schema['enum']}"
    if "const" in schema and data != schema["const"]:
        yield f"{path}: {data!r} is not {schema['const']!r}"
    if isinstance(data, int | float) and not isinstance(data, bool):
        yield from _bounds(data, schema, path)
    if isinstance(data, dict):
        yield from _members(data, schema, path)
    if isinstance(data, list) and "items" in schema:
        for index, item in enumerate(data):
            yield from problems(item, schema["items"], f"{path}[{index}]")


def _is(data: Any, kind: str) -> bool:
    if kind == "integer":
        return type(data) is int
    if kind == "number":
        return type(data) in (int, float)
    return isinstance(data, _TYPES[kind])


def _bounds(data: float, schema: Any, path: str) -> Iterator[str]:
    for word, breaks in _OUTSIDE.items():
        if word in schema and breaks(data, schema[word]):
            yield f"{path}: {data} breaks {word} {schema[word]}"


def _members(data: dict[str, Any], schema: Any, path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in data:
            yield f"{path}: {name} is missing"
    more = schema.get("additionalProperties", True)
    for name, value in data.items():
        if name in schema.get("properties", {}):
            yield from problems(value, schema["properties"][name], f"{path}.{name}")
        elif more is False:
            yield f"{path}: {name} is not known"
        elif more is not True:
            yield from problems(value, more, f"{path}.{name}")


@pytest.mark.parametrize("text", TEXTS)
def test_every_plan_obeys_the_schema(text: str) -> None:
    plan = planned(text)
    for each in (plan, rehearse(plan)):
        assert list(problems(json.loads(json.dumps(plan_to_dict(each))), SCHEMA)) == []


def test_a_saved_plan_obeys_it_too(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    rlc.load(RECIPE_FILES[0]).save(path)
    assert list(problems(json.loads(path.read_text(encoding="utf-8")), SCHEMA)) == []


def test_every_record_is_described_and_closed() -> None:
    for name, definition in SCHEMA["$defs"].items():
        assert definition["additionalProperties"] is False, name
        if name not in ("AdamPlan", "Graph"):
            assert definition["description"], name


def test_names_and_bounds_are_those_of_the_catalogue() -> None:
    definitions = SCHEMA["$defs"]
    named, own = definitions["LossPlan"]["anyOf"]
    assert named["properties"]["name"]["enum"] == names_of("loss")
    assert own["required"] == ["program"]
    assert definitions["EnvPlan"]["properties"]["source"]["enum"] == names_of("env")
    beta1 = definitions["AdamPlan"]["properties"]["beta1"]
    assert (beta1["minimum"], beta1["exclusiveMaximum"]) == (0, 1)
    assert beta1["description"] == "decay of the gradient's mean"
    assert definitions["Training"]["properties"]["kind"] == {"const": "training"}
    assert "kind" in definitions["Training"]["required"]


BROKEN: dict[str, Any] = {
    "a value out of range": (("optimizer", "beta1"), 1.5),
    "a fraction for a whole number": (("steps",), 1.5),
    "an unknown loss": (("objective", "loss", "name"), "ppoo"),
    "an unknown choice": (("source", "batch", "kind"), "tokens"),
    "a field too many": (("source", "sampling", "seed"), 1),
    "nothing where something must be": (("source", "envs"), None),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_plan_breaks_the_schema(what: str) -> None:
    (*parents, last), value = BROKEN[what]
    data = plan_to_dict(planned(TEXTS[0]))
    target = data["stages"][0]
    for name in parents:
        target = target[name]
    target[last] = value
    assert list(problems(json.loads(json.dumps(data)), SCHEMA))
