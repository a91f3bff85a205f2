"""What a run keeps of the row behind a task: its id, its place and its other fields, shortened."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from rlc.data.rows import DataRow
from rlc.plan import hub_dataset
from rlc.records import evolve, field, frozen

ID = "id"  # the field of a row's id, where a recipe names none
LONGEST, MOST = 200, 16  # characters of a value, and fields, that are kept


def _shortened(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as JSON of bounded size; the last says how many are left out."""
    kept = {str(name)[:LONGEST]: _short(value) for name, value in islice(fields.items(), MOST)}
    left = len(fields) - len(kept)
    return {**kept, "…": f"{left} more"} if left else kept


def _short(value: Any) -> Any:
    finite = isinstance(value, float) and math.isfinite(value)
    if value is None or isinstance(value, bool | int) or finite:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


@frozen
class TaskFacts:
    """Facts of a task, for people: its place, its ``id`` or None, other fields."""

    place: str
    id: str | int | None = field(default=None, converter=_short)
    fields: Mapping[str, Any] = field(factory=dict, converter=_shortened)

    def written(self) -> dict[str, Any]:
        named = {} if self.id is None else {"id": self.id}
        return {"place": self.place, **named, "fields": dict(self.fields)}


def about_row(row: DataRow, name: str | None, shown: Collection[str] = ()) -> TaskFacts:
    """Return the facts of a row. ``name``: the field of its id. ``shown``: fields to leave out."""
    ident = name or ID
    others = {key: value for key, value in row.fields.items() if key not in (ident, *shown)}
    place = row.place
    if hub_dataset(place.path) is None:
        place = evolve(place, path=os.path.basename(place.path))
    return TaskFacts(str(place), row.fields.get(ident), others)
