"""Plain values and calls as formatters write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

WIDTH = 88


def literal(value: Any, indent: int = 0) -> str:
    """Write a plain value as Python: one item a line, in the layout of formatters."""
    inner, outer = " " * (indent + 4), " " * indent
    if isinstance(value, dict) and value:
        items = [f"{inner}{literal(k)}: {literal(v, indent + 4)},\n" for k, v in value.items()]
        return "{\n" + "".join(items) + outer + "}"
    if isinstance(value, list | tuple) and value:
        items = [f"{inner}{literal(item, indent + 4)},\n" for item in value]
        return "[\n" + "".join(items) + outer + "]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        single = '"' in value and "'" not in value  # the quotes that need fewer escapes
        return "'" + text[1:-1].replace('\\"', '"') + "'" if single else text
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 100_000:
        return f"{value:_}"
    return repr(value) if not isinstance(value, list | tuple) else "[]"


def call(start: str, arguments: Sequence[str], indent: int = 0) -> str:
    """Write a call (``start`` is what stands before its parenthesis) on one line, or with one
    argument a line where that is too long."""
    outer = " " * indent
    line = f"{outer}{start}({', '.join(arguments)})"
    if len(line) <= WIDTH and "\n" not in line:
        return line
    inside = "".join(f"{outer}    {argument},\n" for argument in arguments)
    return f"{outer}{start}(\n{inside}{outer})"
