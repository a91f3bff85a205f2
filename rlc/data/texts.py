"""Texts in files of the user's own: Jinja2 templates, and rubrics, which judges go by.

A rubric is a text, and criteria with weights: in a file the items of the list under the heading
``Criteria``::

    ## Criteria
    - correct (3): the answer is right
    - clear: a beginner would understand it

A criterion without a weight weighs 1. Without such a heading the text is one question with one
score. Rows may have criteria of their own: a text, a list of texts, or of objects. Where a rubric
says ``{{ row.field }}``, that field of the row stands when it is judged. A question has a task, one
reply to it or several, and a rubric.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlc.data.errors import DataError, FilePlace
from rlc.data.grading.verdicts import shortest_verdict
from rlc.data.rows import require_field
from rlc.plan import JudgePlan, is_text_file
from rlc.records import evolve, frozen

if TYPE_CHECKING:
    from jinja2 import Template


def read_text(path: str) -> str:
    """Return the text of a file. Raise DataError if it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason} at byte {error.start:,}") from error


def text_of(given: str) -> str:
    """Return a text, or that of the file that it names. Raise DataError if there is none."""
    if not is_text_file(given):
        return given
    if not (text := read_text(given).strip()):
        raise DataError(f"there is no text in {given}")
    return text


@frozen
class ParsedTemplate:
    """A template, and the line in which each of its variables is used first."""

    template: Template
    variables: dict[str, int]

    def unknown(self, given: Sequence[str]) -> list[str]:
        return [name for name in self.variables if name not in given]

    def unused(self, given: Sequence[str]) -> list[str]:
        return [name for name in given if name not in self.variables]


def parsed_template(path: str) -> ParsedTemplate:
    """Return the template of a jinja2 file. Raise DataError, with the place, if it is not one."""
    from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, meta, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
        tree = environment.parse(text)
        names = meta.find_undeclared_variables(tree)
        template = environment.from_string(text)
    except OSError as error:
        raise DataError(f"cannot read the template {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read the template {path}: {error}") from error
    except TemplateSyntaxError as error:
        place, why = FilePlace(path, error.lineno, error.lineno), (error.message or "").rstrip(".")
        raise DataError(f"this is no jinja2 template: {why}", place=place) from error
    except (TemplateError, RecursionError) as error:
        raise DataError(f"{path} is no jinja2 template: {error}") from error
    used: dict[str, int] = {}
    for name in sorted(tree.find_all(nodes.Name), key=lambda name: name.lineno):
        if name.name in names:
            used.setdefault(name.name, name.lineno)
    return ParsedTemplate(template, used)


def read_template(path: str, variables: Sequence[str]) -> Callable[..., Any]:
    """Return the ``render`` of a template. Raise DataError unless it uses these variables."""
    read = parsed_template(path)
    if read.unknown(variables) or read.unused(variables):
        needed = " and ".join(f"`{name}`" for name in variables)
        found = ", ".join(sorted(read.variables)) or "none"
        plural = "s" if len(variables) > 1 else ""
        what = f"{path} must use the variable{plural} {needed} and no other; found: {found}"
        raise DataError(what)
    return read.template.render


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
        texts = (self.text, *(one.text for one in self.criteria))
        return tuple(dict.fromkeys(name for text in texts for name in _FIELD.findall(text)))

    def of_row(self, row: Mapping[str, Any] | None, field: str | None) -> Rubric:
        """Return the rubric with a row's fields and its criteria in ``field``. Raise DataError."""
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
    """Return a rubric, or that of the file that it names. Raise DataError if it is unusable."""
    path = rubric if is_text_file(rubric) else None
    text = rubric if path is None else read_text(path)
    said, criteria, listing = list[str](), list[Criterion](), False
    for number, line in enumerate(text.splitlines(), start=1):
        place = None if path is None else FilePlace(path, number, number)
        if heading := _HEADING.fullmatch(line.strip()):
            listing = heading[1].casefold() == "criteria"
            said += [] if listing else [line]
        elif not listing:
            said.append(line)
        elif item := _ITEM.fullmatch(line):
            criteria.append(_criterion(item[1], place, criteria))
        elif line.strip() and criteria and line[0].isspace():  # an item goes on
            last = criteria[-1]
            criteria[-1] = Criterion(last.name, f"{last.text} {line.strip()}", last.weight)
        elif line.strip():
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
    """Return the criteria of a row's own. Raise DataError if the field has none that are usable."""
    given, made = row.get(field), list[Criterion]()
    for number, item in enumerate(given if isinstance(given, list | tuple) else [given], start=1):
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
        made.append(Criterion(re.sub(r"\W+", "_", name), text.strip(), weight, own=True))
    if not made:
        raise DataError(f"the field `{field}` has no criteria")
    names = [one.name for one in made]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"the field `{field}` has two criteria called `{twice}`")
    return tuple(made)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None


# Parts of a question, which what is judged cannot end.
_TAG = re.compile(r"<(?=\s*/?\s*(?:task|reply|rubric|criteria|score|ranking|better)\b)", re.I)


def judge_question(
    judge: JudgePlan, by: str, task: str, replies: Sequence[str], rubric: Rubric
) -> str:
    """Return the question for the ``score`` of one reply, the ``ranking`` of several, or the better
    one of a pair (``pairwise``)."""
    text = rubric_text(rubric)
    if by == "ranking":
        return _ranking_question(task, replies, text)
    if by == "pairwise":
        first, second = replies
        return _pair_question(task, first, second, text)
    (reply,) = replies
    return _score_question(task, reply, text, rubric.criteria, judge.low, judge.high)


def untagged(text: str) -> str:
    """Return a text to judge without the tags of a question's parts, so that a reply can neither
    end its part nor score itself."""
    return _TAG.sub("‹", text)


def rubric_text(rubric: Rubric) -> str:
    """Return a rubric with its criteria listed."""
    listed = "\n".join(f"- {one.name}: {one.text}" for one in rubric.criteria)
    return "\n\n".join(part for part in (rubric.text, listed) if part)


def _score_question(
    task: str, reply: str, rubric: str, criteria: Sequence[Criterion], low: float, high: float
) -> str:
    scale = f"a number from {low:.12g} (worst) to {high:.12g} (best)"
    form = f"Then end with the score, {scale}, as {shortest_verdict('score', (), high, 1)}."
    if criteria:
        each = "\n".join(f'<score name="{one.name}">…</score>' for one in criteria)
        form = f"Then end with a score for each criterion, {scale}:\n{each}"
    return f"""\
Judge a reply to a task by a rubric.

<task>
{untagged(task)}
</task>

<reply>
{untagged(reply)}
</reply>

<rubric>
{rubric}
</rubric>

Say in a few sentences what is good and bad about the reply. {form}"""


def _ranking_question(task: str, replies: Sequence[str], rubric: str) -> str:
    listed = "\n\n".join(
        f'<reply number="{number}">\n{untagged(reply)}\n</reply>'
        for number, reply in enumerate(replies, start=1)
    )
    return f"""\
Compare {len(replies)} replies to one task by a rubric.

<task>
{untagged(task)}
</task>

{listed}

<rubric>
{rubric}
</rubric>

Say in a few sentences what sets the replies apart. Then end with their numbers from the best to \
the worst, each once, with `=` between equally good ones, as <ranking>2 > 1 = 3</ranking>."""


def _pair_question(task: str, first: str, second: str, rubric: str) -> str:
    return f"""\
Compare two replies to one task by a rubric.

<task>
{untagged(task)}
</task>

<reply name="A">
{untagged(first)}
</reply>

<reply name="B">
{untagged(second)}
</reply>

<rubric>
{rubric}
</rubric>

Say in a few sentences what sets them apart, whichever comes first. Then end with the better one, \
as <better>A</better> or <better>B</better>, or with <better>tie</better>."""
