"""The schema of plans, as a table for each record."""

from __future__ import annotations

import json
from typing import Any

from rlc.catalog.schema import Schema, plan_schema
from tools.docs.markdown import code, escaped, page, slug, table


def plan_page() -> str:
    """Return the page of the plan's JSON schema."""
    schema = plan_schema()
    return page(
        "# Plan",
        "The records of `plan.json`, as `rlc explain --out` and a run write it. "
        "`rlc catalog --schema` prints this JSON schema, and [plan.schema.json](plan.schema.json) "
        "is the same.",
        _fields(schema),
        *(
            text
            for name, record in schema["$defs"].items()
            for text in (f"## {name}", escaped(record.get("description", "")), _fields(record))
        ),
    )


def schema_text() -> str:
    """Return the JSON schema of a plan as a file has it."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


def _fields(record: Schema) -> str:
    required = record.get("required", ())
    rows = [
        (
            code(name),
            _type(field),
            "required" if name in required else "",
            escaped(field.get("description", "")),
        )
        for name, field in record.get("properties", {}).items()
    ]
    return table(("field", "type", "", "meaning"), rows)


def _type(schema: Any) -> str:
    """What a field holds; records are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{slug(name)})"
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return f"one of {', '.join(code(str(each)) for each in schema['enum'])}"
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " or ".join(map(_type, schema[several]))
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object" if "additionalProperties" in schema:
            return f"by name: {_type(schema['additionalProperties'])}"
        case list() as names:
            return " or ".join(names)
        case None:
            return "any"
        case name:
            return str(name)
