"""What is looked for among the episodes of a run: ``env:sudoku reward<0.5 is:failed "so the"``."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import NoReturn

from attrs import frozen

from rlc.errors import Error
from rlc.runtime import EpisodeHead, Record, episode_of

_TERM = re.compile(r'"([^"]*)"|(\S+)')
_COMPARED = re.compile(r"reward(>=|<=|>|<|=)(.*)")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": math.isclose,
}
_NAMES, _NUMBERS = ("env", "stage", "role", "ended"), ("step", "task", "member")
_STATES = ("failed", "retried", "replaced")
TERMS = (
    ("word, several words", "in what was said, or why it failed; all have to be"),
    ('"two words"', "together"),
    ("env:NAME stage:NAME role:NAME ended:HOW", "of that name"),
    ("step:40 step:40..60 task:7 member:2", "that number, or from one to another"),
    ("reward>0.5 reward<=0 reward=1", "that reward"),
    ("is:failed is:retried is:replaced", "what became of it"),
    ("row:ID", "the row of data with that id"),
)


class QueryError(Error):
    """A term that cannot be looked for."""


@frozen
class Query:
    """All that an episode has to be. ``of_head`` is known of the beginning of its line,
    ``of_record`` only of the whole, and so is that it has ``words``."""

    of_head: tuple[Callable[[EpisodeHead], bool], ...] = ()
    of_record: tuple[Callable[[Record], bool], ...] = ()
    words: tuple[str, ...] = ()

    @property
    def reads_lines(self) -> bool:
        """Whether the beginnings of lines are not enough."""
        return bool(self.of_record or self.words)

    def fits_head(self, head: EpisodeHead) -> bool:
        return all(fits(head) for fits in self.of_head)

    def fits_line(self, line: bytes) -> bool:
        """Return whether the episode on a line fits, if its beginning does."""
        if not self.reads_lines:
            return True
        lower = line.lower() if self.words else b""  # most lines are sorted out unparsed
        if not all(_quoted(word) in lower for word in self.words if word.isascii()):
            return False
        record = episode_of(line)
        if record is None or not all(fits(record) for fits in self.of_record):
            return False
        said = "\n".join(_texts(record)).lower()
        return all(word in said for word in self.words)


def parse_query(text: str) -> Query:
    """Return what a text asks for. Raise QueryError if a term of it means nothing."""
    of_head, of_record = list[Callable[[EpisodeHead], bool]](), list[Callable[[Record], bool]]()
    words = list[str]()
    for quoted, plain in _TERM.findall(text):
        name, colon, value = plain.partition(":")
        if compared := _COMPARED.fullmatch(plain):
            of_head.append(_rewarded(*compared.groups()))
        elif colon and name in _NAMES:
            of_head.append(_named(name, value))
        elif colon and name in _NUMBERS:
            of_head.append(_numbered(name, value))
        elif colon and name == "is":
            if value == "failed":
                of_head.append(lambda head: head.error is not None)
            elif value in _STATES:
                of_record.append(_marked(value))
            else:
                _refuse(plain, f"known: {', '.join(f'is:{state}' for state in _STATES)}")
        elif colon and name == "row":
            of_record.append(_of_row(value))
        else:
            words.append((quoted or plain).lower())
    return Query(tuple(of_head), tuple(of_record), tuple(filter(None, words)))


def _quoted(word: str) -> bytes:
    return json.dumps(word)[1:-1].encode()


def _named(name: str, value: str) -> Callable[[EpisodeHead], bool]:
    return lambda head: bool(getattr(head, name) == value)


def _numbered(name: str, value: str) -> Callable[[EpisodeHead], bool]:
    low, dots, high = value.partition("..")
    if not re.fullmatch(r"\d+|\d+\.\.\d*|\.\.\d+", value):
        _refuse(f"{name}:{value}", f"write {name}:7, {name}:7..9, {name}:7.. or {name}:..9")
    least = int(low or 0)
    most = (int(high) if high else math.inf) if dots else least
    return lambda head: least <= getattr(head, name) <= most


def _rewarded(sign: str, value: str) -> Callable[[EpisodeHead], bool]:
    try:
        number = float(value)
    except ValueError:
        _refuse(f"reward{sign}{value}", f"write a number: reward{sign}0.5")
    return lambda head: _OPERATORS[sign](head.reward, number)


def _marked(state: str) -> Callable[[Record], bool]:
    return lambda record: bool(record.get(state))


def _of_row(value: str) -> Callable[[Record], bool]:
    return lambda record: str((record.get("about") or {}).get("id")) == value


def _refuse(term: str, hint: str) -> NoReturn:
    raise QueryError(f"`{term}` means nothing here", hint)


def _texts(record: Record) -> Iterator[str]:
    """Yield what was said in an episode, and why it failed."""
    yield record.get("error") or ""
    yield from record.get("retried", ())
    for turn in record["turns"]:
        yield turn["observation"]
        yield turn["action"]
        yield from (f"{name} {given}" for _, name, given in turn.get("calls", ()))
        yield from (verdict["reason"] for verdict in turn.get("verdicts", ()))
        yield from (said for _, _, said in turn.get("others", ()))
