"""What the fields of rows may hold, for everything that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rlc.data.errors import DataError

# What is to be done with the value of a field: it is asked, compared with, or trained on.
Holds = Literal["asked", "prompt", "answer", "text", "messages", "id", "shown", "texts"]
_TYPES: Mapping[Holds, tuple[type, ...]] = {
    "asked": (str, list),
    "prompt": (str, list),
    "answer": (str, int, float, bool, list),
    "text": (str,),
    "messages": (list, str),  # in a cell of a CSV file they are JSON text
    "id": (str, int, float),
    "shown": (str, int, float),
    "texts": (str, list),
}
_NEEDED: Mapping[Holds, str] = {
    "asked": "text or a list of messages",
    "prompt": "text or a list of messages",
    "answer": "text, a number or a list",
    "text": "text",
    "messages": "a list of messages",
    "id": "text or a number",
    "shown": "text or a number",
    "texts": "text or a list of texts",
}
_NOUNS: Mapping[type, str] = {
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a record",
}


class FieldError(DataError):
    """A row whose field cannot be used.

    Attributes:
        field: the name of the field.
        fault: whether the row does not have it, it is empty, or of another type than is needed.
    """

    def __init__(self, what: str, field: str, fault: Literal["missing", "empty", "type"]) -> None:
        super().__init__(what)
        self.field = field
        self.fault = fault


def field_fault(row: Mapping[str, Any], name: str, holds: Holds) -> FieldError | None:
    """What is wrong with a field of a row; None if it can be used."""
    if name not in row:
        there = ", ".join(f"`{field}`" for field in row)
        return FieldError(f"the row has no field `{name}`; it has {there}", name, "missing")
    value = row[name]
    if value is None or value in ("", []) or (isinstance(value, str) and not value.strip()):
        return FieldError(f"the field `{name}` is empty", name, "empty")
    bare = isinstance(value, list) and not all(isinstance(item, Mapping) for item in value)
    unfit = bare and holds in ("asked", "prompt")
    if isinstance(value, list) and holds == "texts":
        unfit = not all(isinstance(item, str) for item in value)
    if not isinstance(value, _TYPES[holds]) or unfit:
        kind = type(value)
        found = _NOUNS.get(kind, f"a {kind.__name__}")
        what = f"the field `{name}` holds {found}, and not {_NEEDED[holds]}"
        return FieldError(what, name, "type")
    return None


def require_field(row: Mapping[str, Any], name: str, holds: Holds) -> None:
    """Raise FieldError for a field that cannot be used."""
    if (fault := field_fault(row, name, holds)) is not None:
        raise fault
