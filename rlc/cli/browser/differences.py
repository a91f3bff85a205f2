"""Two members of a group side by side: turn by turn, with what differs between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from attrs import frozen

from rlc.cli.output import visible
from rlc.cli.transcripts import role_of
from rlc.report import signed
from rlc.runtime import Record

Pieces = tuple[tuple[str, bool], ...]  # of a text, and whether each of them is only here
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_MOST = 3_000  # words that are compared one by one; longer texts are by lines


@frozen
class DifferenceRow:
    """The same part of two episodes: what it is, and both texts in pieces."""

    title: str
    left: Pieces
    right: Pieces


def pieces(left: str, right: str) -> tuple[Pieces, Pieces]:
    """Return two texts in pieces, those that only one of them has marked."""
    long = any(len(_WORDS.findall(text)) > _MOST for text in (left, right))
    split = _LINES if long else _WORDS
    a, b = split.findall(left), split.findall(right)
    found = SequenceMatcher(None, a, b, autojunk=long).get_opcodes()
    lefts = [("".join(a[i:j]), tag != "equal") for tag, i, j, _, _ in found if j > i]
    rights = [("".join(b[i:j]), tag != "equal") for tag, _, _, i, j in found if j > i]
    return tuple(lefts), tuple(rights)


def rows(left: Record, right: Record) -> Iterator[DifferenceRow]:
    """Yield how two episodes went, and their turns; an observation that both share comes once."""
    yield DifferenceRow("", *pieces(_summary(left), _summary(right)))
    turns = zip_longest(left["turns"], right["turns"])
    for number, (a, b) in enumerate(turns, 1):
        for who, name in (("environment", "observation"), ("model", "action")):
            texts = [visible(turn[name]) if turn else "" for turn in (a, b)]
            yield DifferenceRow(f"turn {number}, {who}", *pieces(*texts))
        results = [_result(record, number - 1) for record in (left, right)]
        yield DifferenceRow(f"turn {number}, result", *pieces(*results))


def turn_count(record: Record) -> str:
    return f"{len(record['turns'])} turn{'' if len(record['turns']) == 1 else 's'}"


def _summary(record: Record) -> str:
    lines = [
        f"member {record['member']} {role_of(record)}".rstrip(),
        f"reward {float(record['reward']):.3f}",
    ]
    if known := record["advantages"]:
        lines.append(f"advantage {signed(sum(known) / len(known))}")
    lines.append(f"{turn_count(record)}, {record['ended']}")
    lines += [f"✕ {visible(record['error'])}"] if record["error"] else []
    return "\n".join(lines)


def _result(record: Record, turn: int) -> str:
    if turn >= len(record["turns"]):
        return "(no such turn)"
    one = record["turns"][turn]
    reward = "no reward" if one["reward"] is None else f"reward {one['reward']:.3f}"
    measured = "".join(f"\n{name} {value:g}" for name, value in one["metrics"].items())
    return f"{reward}\n{one['tokens']:,} tokens, {one['stop_reason']}{measured}"


def other_member(members: Sequence[Record], this: int) -> int | None:
    """Return the place of the member to compare ``this`` with first: the best of its group, or the
    worst if it is the best itself. None if it is alone."""
    others = [place for place in range(len(members)) if place != this]
    if not others:
        return None
    best = max(others, key=lambda place: float(members[place]["reward"]))
    worst = min(others, key=lambda place: float(members[place]["reward"]))
    ahead = float(members[this]["reward"]) >= float(members[best]["reward"])
    return worst if ahead else best
