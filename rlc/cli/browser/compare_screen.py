"""Two members of a group side by side."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from rlc.cli.browser.differences import Pieces, other_member, rows
from rlc.runtime import Record


class CompareScreen(Screen[None]):
    """Shows the member ``this`` of a group on the left, and on the right another one."""

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
    """What differs is underlined too, for those who do not see the colour."""
    marked = "bold underline $text-warning"
    return Content.assemble(*((text, marked if differs else "") for text, differs in side))
