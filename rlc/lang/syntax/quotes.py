"""Which quote of a line is missing or extra, where their number is odd.

The quotes cut the line into segments, code and text in turn; one quote too many or too few turns
everything after it inside out. So every place for the mistake is tried: what lies before it reads
as it did, what lies after it the other way round, and the reading is best in which code looks like
code and text like text. Costs of the segments before and after are summed up once, so the search is
linear in the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise

from rlc.records import evolve, frozen

MAX_LINE = 4_000  # characters; beyond, a line is no recipe's
MAX_CUTS = 12  # places where a text may have started or ended
_EXTRA_COST = 0.5  # a quote is forgotten more often than typed twice
EXTRA, NO_OPENING, NO_CLOSING = "extra", "no opening", "no closing"

_QUOTE = re.compile(r'\\.|"')
_COMMENT = re.compile(r"(?:^|\s)#")
# Code before an opening quote, after a closing one, and all through.
_BEFORE_TEXT = re.compile(r"(?:^|[=(\[,+*]|\bimport)\s*$")
_AFTER_TEXT = re.compile(
    r"\s*(?:$|[)\]},|+*]|then\b)|\s+[A-Za-z_]\w*(?:\s*=|\s+[A-Za-z_]\w*\s*[={:]|\s*$)"
)
_WRONG_IN_CODE = re.compile(
    r"[\\/!?;]|\.(?!\w)|\b[A-Za-z_]\w*(?:\s+[A-Za-z_]\w*){3}|\w:\S|[A-Za-z_]-[A-Za-z_]"
)
_WRONG_IN_TEXT = re.compile(r"\w\s*=\s*|\|>|^[\s,)\]}]|[\s({\[,]$|^[\d._]*(?:[eE]-?\d+)?$")
# Where a text without a closing quote ends, and one without an opening quote starts.
END_OF_TEXT = re.compile(r"(?=\s*(?:[),\]]|\|>|\}|$))|(?=\s+[A-Za-z_]\w*\s*=)")
_START_OF_TEXT = re.compile(r"(?:[=(\[,]|\bimport\b)\s*")


@frozen
class Misquote:
    """One mistake in a line.

    An extra quote stands at ``start``; else the text without one of its quotes is
    ``[start, end)`` with the quote that it has. It is ``clear`` if no other reading of the line is
    as likely.
    """

    kind: str
    start: int
    end: int
    clear: bool = True


def misquote(line: str) -> Misquote | None:
    """The most likely mistake in a line with an odd number of quotes; None in any other."""
    comment = _COMMENT.search(line)
    code = line[: comment.start()].rstrip() if comment else line.rstrip()
    places = [match.start() for match in _QUOTE.finditer(code) if match[0] == '"']
    if len(places) % 2 == 0 or len(line) > MAX_LINE:
        return None
    readings = list(_Readings(code, [-1, *places, len(code)]).all())
    least, best = min(readings, key=lambda reading: reading[0])
    starts = {found.start for cost, found in readings if (cost, found.kind) == (least, NO_OPENING)}
    return evolve(best, clear=len(starts) < 2)


_Reading = tuple[float, Misquote]  # with what it costs


class _Readings:
    """The ways to read a line with one quote less or more.

    ``bounds`` are the places of the quotes, with one before the line and one at its end. Segment i
    is text if i is odd, up to the mistake; after it, if i is even.
    """

    def __init__(self, line: str, bounds: list[int]) -> None:
        self.line, self.bounds = line, bounds
        segments = [line[start + 1 : end] for start, end in pairwise(bounds)]
        self.last = len(segments) - 1

        def cost(index: int, is_text: bool) -> float:
            return _cost(segments[index], is_text, index == 0, index == self.last)

        indices = range(len(segments))
        self.before = [0.0, *accumulate(cost(i, i % 2 == 1) for i in indices)]
        self.after = [0.0, *accumulate(cost(i, i % 2 == 0) for i in reversed(indices))][::-1]

    def all(self) -> Iterator[_Reading]:
        for index in range(self.last + 1):
            yield from self.without_closing(index) if index % 2 else self.without_opening(index)
            if index < self.last:
                yield self.with_extra(index)

    def without_closing(self, index: int) -> Iterator[_Reading]:
        """The text that segment ``index`` starts with ends before the next quote."""
        start, end = self.bounds[index] + 1, self.bounds[index + 1]
        cuts = [match.start() for match in END_OF_TEXT.finditer(self.line, start, end)]
        for cut in cuts[:MAX_CUTS] or [end]:
            yield self.split(index, cut, Misquote(NO_CLOSING, start - 1, cut))

    def without_opening(self, index: int) -> Iterator[_Reading]:
        """The text that the quote after segment ``index`` ends starts within it."""
        start, end = self.bounds[index] + 1, self.bounds[index + 1]
        if index == self.last:
            return
        # The latest first: of equal readings it is the shortest text.
        cuts = [match.end() for match in _START_OF_TEXT.finditer(self.line, start, end)][::-1]
        for cut in cuts[:MAX_CUTS] or [start]:
            yield self.split(index, cut, Misquote(NO_OPENING, cut, end + 1))

    def split(self, index: int, cut: int, found: Misquote) -> _Reading:
        start, end = self.bounds[index] + 1, self.bounds[index + 1]
        cost = self.before[index] + self.after[index + 1]
        cost += _cost(self.line[start:cut], index % 2 == 1, index == 0, False)
        cost += _cost(self.line[cut:end], index % 2 == 0, False, index == self.last)
        return cost, found

    def with_extra(self, index: int) -> _Reading:
        """Segments ``index`` and the next are one, and the quote between them says nothing."""
        place = self.bounds[index + 1]
        joined = self.line[self.bounds[index] + 1 : self.bounds[index + 2]].replace('"', " ")
        cost = _cost(joined, index % 2 == 1, index == 0, index + 1 == self.last)
        cost += self.before[index] + self.after[index + 2] + _EXTRA_COST
        return cost, Misquote(EXTRA, place, place + 1)


def _cost(segment: str, is_text: bool, is_first: bool, is_last: bool) -> float:
    """How unlikely a segment is as what it is taken for."""
    if is_text:
        brackets = sum(segment.count(a) != segment.count(b) for a, b in ("()", "[]", "{}"))
        return len(_WRONG_IN_TEXT.findall(segment)) + brackets
    cost = 2.0 * len(_WRONG_IN_CODE.findall(segment))
    if not is_last and not (is_first and not segment.strip()):
        cost += 2 * (_BEFORE_TEXT.search(segment) is None)
    if not is_first:
        cost += 2 * (_AFTER_TEXT.match(segment) is None)
    return cost
