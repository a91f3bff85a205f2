"""Questions to judges, and their answers.

An answer ends with its verdict in tags: ``<score>7</score>``, for criteria
``<score name="clear">7</score>`` each; ``<ranking>2 > 3 = 1</ranking>``; ``<better>A</better>``. An
answer in which a tag is missing, is contradicted, or holds anything else is no verdict. The tags of
a question's parts are taken out of what is judged, so that a reply can neither end its part nor
score itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from rlc.data import Criterion, Rubric

_TAG = re.compile(r"<(?=\s*/?\s*(?:task|reply|rubric|criteria|score|ranking|better)\b)", re.I)
_SCORE = re.compile(r"<score(?:\s+name\s*=\s*[\"']?(\w+)[\"']?)?\s*>(.*?)</score>", re.I | re.S)
_RANKING = re.compile(r"<ranking>(.*?)</ranking>", re.I | re.S)
_BETTER = re.compile(r"<better>(.*?)</better>", re.I | re.S)
_NUMBER = re.compile(r"[-+]?[0-9]{1,12}(?:\.[0-9]{1,12})?")
_THINKING = re.compile(r"\s*<think>.*?</think>", re.S)
_REASON = 2_000  # characters that are kept


def shown(text: str) -> str:
    """Return a text to judge without the tags of a question's parts."""
    return _TAG.sub("‹", text)


def described(rubric: Rubric) -> str:
    listed = "\n".join(f"- {one.name}: {one.text}" for one in rubric.criteria)
    return "\n\n".join(part for part in (rubric.text, listed) if part)


def score_question(
    task: str, reply: str, rubric: str, criteria: Sequence[Criterion], low: float, high: float
) -> str:
    scale = f"a number from {low:g} (worst) to {high:g} (best)"
    form = f"Then end with the score, {scale}, as <score>{high:g}</score>."
    if criteria:
        each = "\n".join(f'<score name="{one.name}">…</score>' for one in criteria)
        form = f"Then end with a score for each criterion, {scale}:\n{each}"
    return f"""\
Judge a reply to a task by a rubric.

<task>
{shown(task)}
</task>

<reply>
{shown(reply)}
</reply>

<rubric>
{rubric}
</rubric>

Say in a few sentences what is good and bad about the reply. {form}"""


def ranking_question(task: str, replies: Sequence[str], rubric: str) -> str:
    listed = "\n\n".join(
        f'<reply number="{number}">\n{shown(reply)}\n</reply>'
        for number, reply in enumerate(replies, start=1)
    )
    return f"""\
Compare {len(replies)} replies to one task by a rubric.

<task>
{shown(task)}
</task>

{listed}

<rubric>
{rubric}
</rubric>

Say in a few sentences what sets the replies apart. Then end with their numbers from the best to \
the worst, each once, with `=` between equally good ones, as <ranking>2 > 1 = 3</ranking>."""


def pair_question(task: str, first: str, second: str, rubric: str) -> str:
    return f"""\
Compare two replies to one task by a rubric.

<task>
{shown(task)}
</task>

<reply name="A">
{shown(first)}
</reply>

<reply name="B">
{shown(second)}
</reply>

<rubric>
{rubric}
</rubric>

Say in a few sentences what sets them apart, whichever comes first. Then end with the better one, \
as <better>A</better> or <better>B</better>, or with <better>tie</better>."""


def read_scores(
    answer: str, names: Sequence[str], low: float, high: float
) -> Mapping[str, float] | None:
    """Return the scores of an answer, as shares of the scale, by name; "" is the name of a score
    alone. None if one is missing, out of the scale or given twice in different ways."""
    found: dict[str, Fraction] = {}
    for name, text in _SCORE.findall(_said(answer)):
        number = _NUMBER.fullmatch(text.strip())
        if number is None or found.setdefault(name, Fraction(number[0])) != Fraction(number[0]):
            return None
    start, end = Fraction(low), Fraction(high)
    inside = all(start <= value <= end for value in found.values())
    if set(found) != set(names or ("",)) or not inside:
        return None
    return {name: float((value - start) / (end - start)) for name, value in found.items()}


def read_ranking(answer: str, count: int) -> list[float] | None:
    """Return the score of each reply, from 1 for the best to 0 for the worst; equal ones share the
    mean of their places. None unless each of the numbers stands in the ranking once."""
    text = _once(_RANKING.findall(_said(answer)))
    ranks = [[part.strip() for part in rank.split("=")] for rank in (text or "").split(">")]
    flat = [part for rank in ranks for part in rank]
    if sorted(flat) != sorted(str(number) for number in range(1, count + 1)):
        return None
    scores, place = [0.0] * count, 0
    for rank in ranks:
        middle = place + (len(rank) - 1) / 2
        for part in rank:
            scores[int(part) - 1] = 1.0 - middle / (count - 1)
        place += len(rank)
    return scores


def read_better(answer: str) -> float | None:
    """Return 1 if the first of two replies is better, 0 if the second is, 0.5 for a tie."""
    text = _once(_BETTER.findall(_said(answer)))
    return None if text is None else {"a": 1.0, "b": 0.0, "tie": 0.5}.get(text.casefold())


def reason_of(answer: str) -> str:
    """Return an answer before its verdict, shortened."""
    said = _said(answer)
    starts = [match.start() for tag in (_SCORE, _RANKING, _BETTER) for match in tag.finditer(said)]
    return shortened(said[: min(starts, default=len(said))].strip())


def shortened(reason: str) -> str:
    return reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…"


def _said(answer: str) -> str:
    return _THINKING.sub("", answer, count=1)


def _once(found: Sequence[str]) -> str | None:
    """Return the text, if there is one, or the same each time."""
    different = {" ".join(text.split()) for text in found}
    return different.pop() if len(different) == 1 else None
