"""Width, colours and amounts in all sections of the text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from math import isinf

from rlc.lang.render import Paint
from rlc.plan import UNKNOWN as UNKNOWN
from rlc.pricing import Money

WIDTH = 100  # columns of the text
INDENT = 4
ROOM = WIDTH - INDENT  # columns of a section's lines
NO_BOUND = "no bound"

Lines = Iterator[str]


def section(title: str, lines: Iterable[str], paint: Paint) -> Lines:
    """Yield lines with a title, indented; nothing if there are none."""
    for number, line in enumerate(lines):
        if number == 0:
            yield from ("", f"  {paint.title(title)}")
        yield f"{'':{INDENT}}{line}"


def wrap(text: str, room: int, first: str = "", later: str = "") -> list[str]:
    """Return the lines of a text: the first starts with ``first``, the others with ``later``."""
    if len(first) + len(text) <= room and not {"\n", "\t"} & {*text} and text:  # most fit
        return [first + text]
    return textwrap.wrap(text, room, initial_indent=first, subsequent_indent=later)


def wrapped(text: str, bullet: str = "", hang: int = 0) -> Lines:
    """Yield a sentence in as many lines as it needs, those after the first indented."""
    yield from wrap(text, ROOM, bullet, " " * (hang or len(bullet)))


def count(number: int, noun: str) -> str:
    """Return ``1 step``, ``2,000 steps``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def number(value: float) -> str:
    """Return ``2,000``; ``no bound`` of what nothing limits."""
    return NO_BOUND if isinf(value) else f"{round(value):,}"


def dollars(money: Money, sign: str = "$") -> str:
    """Return ``$1.25``, or ``$0.0125`` below a dollar; ``≥ $1.25`` for a lower bound; ``unknown``
    where nothing is known, ``no bound`` of what nothing limits."""
    if isinf(money.usd):
        return NO_BOUND
    if not money.known:
        return UNKNOWN
    places = 4 if 0 < money.usd < 1 else 2
    return f"{'' if money.complete else '≥ '}{sign}{money.usd:,.{places}f}"
