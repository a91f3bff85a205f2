"""What is kept of a row with the rollouts of its task."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlc.data.about import LONGEST, MOST, about_row
from rlc.data.errors import FilePlace
from rlc.data.rows import DataRow


def row(**fields: Any) -> DataRow:
    return DataRow(fields, FilePlace("rows.jsonl", 3, 4))


def test_id_place_and_other_fields_are_kept() -> None:
    about = about_row(row(id=17, question="2+2?", answer="4", level=2), None, ("question",))
    fields = {"answer": "4", "level": 2}
    assert about.written() == {"place": "rows.jsonl:4", "id": 17, "fields": fields}


def test_a_row_without_an_id_has_its_place() -> None:
    assert about_row(row(a=1), None).written() == {"place": "rows.jsonl:4", "fields": {"a": 1}}


def test_a_field_of_ids_can_be_named() -> None:
    assert about_row(row(uid="a", id="b"), "uid").id == "a"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3 * LONGEST),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=2 * LONGEST), values, max_size=2 * MOST))
def test_what_is_kept_is_json_of_bounded_size(fields: dict[str, Any]) -> None:
    written = about_row(DataRow(fields, FilePlace("r.jsonl", 1, 1)), None).written()
    assert len(written["fields"]) <= MOST + 1
    text = json.dumps(written, allow_nan=False, ensure_ascii=False)
    assert len(text) < 20 * LONGEST * (MOST + 2)
    shown = [value for value in written["fields"].values() if isinstance(value, str)]
    assert all(len(value) <= LONGEST for value in shown)
