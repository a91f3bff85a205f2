"""Two members of a group side by side: turn by turn, with what differs between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from attrs import frozen
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from rlc.cli.output import visible
from rlc.cli.transcripts import role_of, turn_count
from rlc.report import signed
from rlc.runtime import Record


class CompareScreen(Screen[None]):
    """Shows the member ``this`` of a group on the left, and another one on the right."""

    BINDINGS = [
        ("escape,c", "dismiss", "back"),
        ("right_square_bracket", "other(1)", "next on the right"),
        ("left_square_bracket", "other(-1)", "previous"),
        ("s", "swap", "swap sides"),
    ]

    def __init__(self, members: Sequence[Record], this: int) -> None:
        super().__init__()
        other = other_member(members, this)
        assert other is not None, "a member that is alone has nothing to be compared with"
        self.members, self.left, self.right = members, this, other

    def compose(self) -> ComposeResult:
        yield VerticalScroll(id="rows")
        yield Footer(compact=True)

    async def on_mount(self) -> None:
        await self._show()
        self.query_one("#rows").focus()

    async def action_other(self, by: int) -> None:
        places = [place for place in range(len(self.members)) if place != self.left]
        self.right = places[(places.index(self.right) + by) % len(places)]
        await self._show()

    async def action_swap(self) -> None:
        self.left, self.right = self.right, self.left
        await self._show()

    async def _show(self) -> None:
        found = list(rows(self.members[self.left], self.members[self.right]))
        place = self.query_one("#rows")
        with self.app.batch_update():
            await place.remove_children()
            for row in found:
                same = row.left == row.right
                if row.title:
                    title = f"── {row.title}{', the same for both' if same else ''}"
                    await place.mount(Static(title, classes="title", markup=False))
                texts = [row.left] if same else [row.left, row.right]
                sides = [Static(_content(text), classes="side") for text in texts]
                await place.mount(Horizontal(*sides, classes="row"))


def _content(side: Pieces) -> Content:
    """Return the pieces, those that differ also underlined, for those who do not see the colour."""
    marked = "bold underline $text-warning"
    return Content.assemble(*((text, marked if differs else "") for text, differs in side))


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
    for number, (a, b) in enumerate(zip_longest(left["turns"], right["turns"]), 1):
        for who, name in (("environment", "observation"), ("model", "action")):
            texts = [visible(turn[name]) if turn else "" for turn in (a, b)]
            yield DifferenceRow(f"turn {number}, {who}", *pieces(*texts))
        results = [_result(record, number - 1) for record in (left, right)]
        yield DifferenceRow(f"turn {number}, result", *pieces(*results))


def _summary(record: Record) -> str:
    lines = [f"member {record['member']} {role_of(record)}".rstrip()]
    lines.append(f"reward {float(record['reward']):.3f}")
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
    """Return the best other member, or the worst if ``this`` is the best; None if it is alone."""
    others = [place for place in range(len(members)) if place != this]
    if not others:
        return None
    rewards = [float(member["reward"]) for member in members]
    best, worst = max(others, key=rewards.__getitem__), min(others, key=rewards.__getitem__)
    return worst if rewards[this] >= rewards[best] else best
