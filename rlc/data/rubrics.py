"""Rubrics: what a judge goes by, a text and criteria with weights.

In a file, the items of the list under the heading ``Criteria`` are the criteria::

    ## Criteria
    - correct (3): the answer is right
    - clear: a beginner would understand it

A criterion without a weight weighs 1. Without such a heading the text is one question with one
score. Rows may have criteria of their own: a text, a list of texts, or of objects. Where a rubric
says ``{{ row.field }}``, that field of the row stands when it is judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlc.data.errors import DataError, FilePlace
from rlc.data.fields import require_field
from rlc.data.templates import read_text
from rlc.plan import is_text_file
from rlc.records import evolve, frozen

_HEADING = re.compile(r"#+\s*(.+?)\s*#*")
_ITEM = re.compile(r"[-*+]\s+(.*)")
_CRITERION = re.compile(r"[*_`]*([A-Za-z]\w*)[*_`]*\s*(?:\(([^()]*)\))?\s*[*_`]*:[*_`]*\s*(\S.*)")
_FIELD = re.compile(r"\{\{\s*row\.(\w+)\s*\}\}")
_TEXTS = ("criterion", "text", "description", "rubric", "rubric_str")  # of a row's criterion
_NAMES, _WEIGHTS = ("name", "title", "id"), ("weight", "points")


@frozen
class Criterion:
    """One thing to score, by its name. ``own``: it is that of one row."""

    name: str
    text: str
    weight: float = 1.0
    own: bool = False


@frozen
class Rubric:
    """What a judge goes by; without criteria there is one score for all of it."""

    text: str
    criteria: tuple[Criterion, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a row that it shows, each once."""
        texts = (self.text, *(one.text for one in self.criteria))
        return tuple(dict.fromkeys(name for text in texts for name in _FIELD.findall(text)))

    def of_row(self, row: Mapping[str, Any] | None, field: str | None) -> Rubric:
        """The rubric for a row: with the fields of it that it shows, and with the criteria in its
        ``field`` (None: it has none). Raise DataError for a row without them."""
        if not self.fields and field is None:
            return self
        if row is None:
            raise DataError("the rubric is different for each row, and there are no rows")
        for name in self.fields:
            require_field(row, name, "shown")
        own = () if field is None else row_criteria(row, field)

        def filled(text: str) -> str:
            return _FIELD.sub(lambda found: str(row[found[1]]), text)

        criteria = [evolve(one, text=filled(one.text)) for one in self.criteria]
        return Rubric(filled(self.text), (*criteria, *own))


def read_rubric(rubric: str) -> Rubric:
    """The rubric that a plan names, or writes. Raise DataError for a file that cannot be read, and
    for a rubric that is empty or has an item that is no criterion."""
    if not is_text_file(rubric):
        return _rubric(rubric, None)
    return _rubric(read_text(rubric), rubric)


def _rubric(text: str, path: str | None) -> Rubric:
    said, criteria, listing = list[str](), list[Criterion](), False
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _HEADING.fullmatch(line.strip()):
            listing = heading[1].casefold() == "criteria"
            said += [] if listing else [line]
        elif not listing:
            said.append(line)
        elif item := _ITEM.fullmatch(line):
            place = None if path is None else FilePlace(path, number, number)
            criteria.append(_criterion(item[1], place, criteria))
        elif line.strip() and criteria and line[0].isspace():  # an item goes on
            last = criteria[-1]
            criteria[-1] = Criterion(last.name, f"{last.text} {line.strip()}", last.weight)
        elif line.strip():
            place = None if path is None else FilePlace(path, number, number)
            raise DataError("this is no item of the list of criteria", _FORM, place)
    if not "".join(said).strip() and not criteria:
        raise DataError(f"the rubric{f' {path}' if path else ''} is empty")
    return Rubric("\n".join(said).strip(), tuple(criteria))


_FORM = "an item reads `- correct (3): the answer is right`; 3 is its weight"


def _criterion(item: str, place: FilePlace | None, before: Sequence[Criterion]) -> Criterion:
    match = _CRITERION.fullmatch(item.strip())
    weight = _number(match[2]) if match and match[2] is not None else 1.0
    if match is None or weight is None:
        raise DataError("this item is no criterion with a name", _FORM, place)
    if any(match[1] == other.name for other in before):
        raise DataError(f"there are two criteria called `{match[1]}`", place=place)
    return Criterion(match[1], match[3], weight)


def row_criteria(row: Mapping[str, Any], field: str) -> tuple[Criterion, ...]:
    """The criteria of a row's own. Raise DataError if the field has none that can be read."""
    given = row.get(field)
    items = given if isinstance(given, list | tuple) else [given]
    made = tuple(_of_row(items, field))
    if not made:
        raise DataError(f"the field `{field}` has no criteria")
    names = [one.name for one in made]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"the field `{field}` has two criteria called `{twice}`")
    return made


def _of_row(items: Sequence[Any], field: str) -> Iterator[Criterion]:
    for number, item in enumerate(items, start=1):
        name, text, weight = f"criterion_{number}", item, 1.0
        if isinstance(item, Mapping):
            text = next((item[key] for key in _TEXTS if key in item), None)
            name = str(next((item[key] for key in _NAMES if key in item), name))
            said = next((item[key] for key in _WEIGHTS if key in item), 1.0)
            weight = _number(said) or 0.0
        if not isinstance(text, str) or not text.strip() or weight <= 0:
            raise DataError(
                f"the field `{field}` has no criteria that can be read: item {number} is {item!r}",
                'a text, a list of texts, or of {"name": …, "criterion": …, "weight": …}',
            )
        yield Criterion(re.sub(r"\W+", "_", name), text.strip(), weight, own=True)


def _number(value: Any) -> float | None:
    """A positive number; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None
