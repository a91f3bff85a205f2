"""Answers of judges.

An answer ends with its verdict in tags: ``<score>7</score>``, for criteria
``<score name="clear">7</score>`` each; ``<ranking>2 > 3 = 1</ranking>``; ``<better>A</better>``. An
answer in which a tag is missing, is contradicted, or holds anything else is no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

_ASKED = re.compile(r"<score(?:\s+name\s*=\s*([^>]+))?\s*>", re.I)
_SCORE = re.compile(r"<score(?:\s+name\s*=\s*[\"']?(\w+)[\"']?)?\s*>(.*?)</score>", re.I | re.S)
_SCALE = re.compile(
    r"\b(?:scored?|rated?|scale)\b[^.\n]{0,30}?\b([0-9]+)\s*(?:to|and|-|–)\s*([0-9]+)\b", re.I
)
_DIGIT = re.compile(r"[0-9]")
_WORDS = {"good", "bad", "yes", "no", "pass", "fail", "excellent", "poor", "true", "false"}
_RANKING = re.compile(r"<ranking>(.*?)</ranking>", re.I | re.S)
_BETTER = re.compile(r"<better>(.*?)</better>", re.I | re.S)
_NUMBER = re.compile(r"[-+]?[0-9]{1,12}(?:\.[0-9]{1,12})?")
_THINKING = re.compile(r"\s*<think>.*?</think>", re.S)
_REASON = 2_000  # characters that are kept


def shortest_verdict(by: str, names: Sequence[str], high: float, count: int) -> str:
    """Return the shortest answer that has a verdict: the best score, for criteria each, the
    ``ranking`` of ``count`` replies, or the better one of a pair (``pairwise``)."""
    if by == "ranking":
        return f"<ranking>{'>'.join(map(str, range(1, count + 1)))}</ranking>"
    if by == "pairwise":
        return "<better>A</better>"
    best = f"{high:.12g}</score>"
    return "".join(f'<score name="{name}">{best}' for name in names) or f"<score>{best}"


def question_fault(question: str, names: Sequence[str], low: float, high: float) -> str | None:
    """Return why answers in the form that a question shows would be no verdicts; None if nothing
    shows that."""
    asked = _ASKED.findall(question)
    if not asked:
        return "does not ask for `<score>7</score>`, which is what is read"
    if names and not any(asked):
        return f'does not ask for `<score name="{names[0]}">7</score>`, of each criterion'
    if not names and all(asked):
        return "asks for scores with names, and the rubric has no criteria"
    shown = [text.strip() for _, text in _SCORE.findall(question)]
    numbers = [text for text in shown if _NUMBER.fullmatch(text)]
    for text in shown:
        if text not in numbers and (text.casefold() in _WORDS or _DIGIT.search(text)):
            return f"shows the score `{text}`, and only a number is read"
    if numbers and not any(low <= float(number) <= high for number in numbers):
        return f"shows the score {numbers[0]}, which is not from {low:g} to {high:g}"
    for first, last in _SCALE.findall(question):
        if (float(first), float(last)) != (low, high):
            return f"speaks of scores from {first} to {last}, where {low:g} to {high:g} are read"
    return None


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
