"""A page of the browser: blocks of lines to scroll through, its turns coloured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rlc.cli.browser.pages import COLORINGS, Block
from rlc.cli.transcripts import Line, Part

# What the styles of `rlc show` are in the theme, which is light or dark.
_STYLES = {
    "": "",
    "bold": "bold",
    "dim": "$foreground 60%",
    "cyan": "$text-accent",
    "magenta": "$text-secondary",
    "green": "$text-success",
    "red": "$text-error",
    "yellow": "$text-warning",
    "bold yellow": "bold $text-warning",
}


def content_of(lines: Iterable[Line]) -> Content:
    """Return lines as a widget shows them."""
    return Content("\n").join(_line(style, parts) for style, parts in lines)


def _line(style: str, parts: Sequence[Part]) -> Content:
    pairs = [(part, style) if isinstance(part, str) else part for part in parts]
    # A text that some model wrote: no markup of it counts.
    return Content.assemble(*((text, _STYLES[named]) for text, named in pairs if text))


class Page(VerticalScroll):
    """The blocks of a page. ``coloring`` is what its turns are coloured by."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.coloring = COLORINGS[0]
        self.blocks: tuple[Block, ...] = ()

    async def show(self, blocks: Iterable[Block]) -> None:
        """Show other blocks, from the top."""
        self.blocks = tuple(blocks)
        widgets = [Static(content_of(b.lines), classes="block", markup=False) for b in self.blocks]
        with self.app.batch_update():
            await self.remove_children()
            await self.mount_all(widgets)
        self.scroll_home(animate=False)
        self.color()

    def color(self) -> None:
        """Colour the blocks anew. A bar beside them is thicker for what is good, so that it can be
        told apart without colour."""
        for block, widget in zip(self.blocks, self.query(".block"), strict=True):
            tone = block.tones.get(self.coloring)
            widget.set_class(tone is not None and tone > 0, "good")
            widget.set_class(tone is not None and tone < 0, "bad")
            widget.set_class(block.is_turn and not tone, "even")

    def next_turn(self, by: int) -> None:
        """Scroll to the next turn, or with ``by = -1`` to the one before."""
        tops = [
            widget.virtual_region.y
            for block, widget in zip(self.blocks, self.query(".block"), strict=True)
            if block.is_turn
        ]
        now = self.scroll_target_y
        ahead = [top for top in tops if top > now] if by > 0 else [top for top in tops if top < now]
        if ahead:
            self.scroll_to(y=min(ahead) if by > 0 else max(ahead), animate=False)
        elif by < 0:
            self.scroll_home(animate=False)

    @property
    def text(self) -> str:
        """What is on the page, without its colours."""
        return "\n".join(content_of(block.lines).plain for block in self.blocks)
