"""A page of the browser: blocks of lines to scroll through, its turns coloured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rlc.cli.browser.pages import COLORINGS, PageBlock
from rlc.cli.output import Line, Part
from rlc.cli.tokens import COLORINGS as TOKEN_COLORINGS
from rlc.cli.tokens import token_line

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
    # Tokens: above what they are measured by bold, below underlined, for those who see no colour.
    "token+0": "",
    "token+1": "bold $text-success on $success 15%",
    "token+2": "bold $text-success on $success 30%",
    "token+3": "bold $text-success on $success 50%",
    "token-1": "underline $text-error on $error 15%",
    "token-2": "underline $text-error on $error 30%",
    "token-3": "underline $text-error on $error 50%",
    "chosen": "bold reverse",
}


def content_of(lines: Iterable[Line]) -> Content:
    """Return lines as a widget shows them."""
    return Content("\n").join(_line(style, parts) for style, parts in lines)


def _line(style: str, parts: Sequence[Part]) -> Content:
    pairs = [(part, style) if isinstance(part, str) else part for part in parts]
    # A text that some model wrote: no markup of it counts.
    return Content.assemble(*((text, _STYLES[named]) for text, named in pairs if text))


class PageView(VerticalScroll):
    """The blocks of a page. ``coloring`` is what its turns and tokens are coloured by, ``chosen``
    the block and the place in it of the token that is looked at."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.coloring = COLORINGS[0]
        self.blocks: tuple[PageBlock, ...] = ()
        self.chosen: tuple[int, int] | None = None

    @property
    def has_tokens(self) -> bool:
        return any(block.tokens for block in self.blocks)

    @property
    def token(self) -> str:
        """What is known of the token that is looked at; empty if there is none."""
        if self.chosen is None:
            return ""
        number, place = self.chosen
        tokens = self.blocks[number].tokens
        return token_line(tokens[place], place, len(tokens))

    async def show(self, blocks: Iterable[PageBlock]) -> None:
        """Show other blocks, from the top."""
        self.blocks, self.chosen = tuple(blocks), None
        widgets = [Static(content_of(b.lines), classes="block", markup=False) for b in self.blocks]
        with self.app.batch_update():
            await self.remove_children()
            await self.mount_all(widgets)
        self.scroll_home(animate=False)
        self.color()

    def color(self) -> None:
        """Colour the blocks anew. A bar beside them is thicker for what is good, so that it can be
        told apart without colour."""
        for number, (block, widget) in enumerate(self._drawn()):
            tone = block.tones.get(self.coloring)
            widget.set_class(tone is not None and tone > 0, "good")
            widget.set_class(tone is not None and tone < 0, "bad")
            widget.set_class(block.is_turn and not tone, "even")
            if block.drawn is not None:
                mine = self.chosen is not None and self.chosen[0] == number
                chosen = self.chosen[1] if mine and self.chosen else None
                plain = self.coloring not in TOKEN_COLORINGS and chosen is None
                lines = block.lines if plain else block.drawn(self.coloring, chosen)
                widget.update(content_of(lines))

    def _drawn(self) -> Iterator[tuple[PageBlock, Static]]:
        """Yield each block with what shows it."""
        return zip(self.blocks, self.query(".block").results(Static), strict=True)

    def next_token(self, by: int) -> None:
        """Look at the next token of a reply, or with ``by = -1`` at the one before; first at the
        first one of what is on the screen."""
        places = [(at, i) for at, block in enumerate(self.blocks) for i in range(len(block.tokens))]
        if not places:
            return
        if self.chosen is None:
            drawn = [widget.virtual_region.bottom for _, widget in self._drawn()]
            top = self.scroll_target_y
            number = next((n for n, (at, _) in enumerate(places) if drawn[at] > top), 0)
        else:
            number = min(max(0, places.index(self.chosen) + by), len(places) - 1)
        self.chosen = at, _ = places[number]
        self.color()
        _, widget = list(self._drawn())[at]
        y = widget.virtual_region.y + _lines_above_chosen(widget)
        if not self.scroll_target_y <= y < self.scroll_target_y + self.size.height - 1:
            self.scroll_to(y=max(0, y - self.size.height // 2), animate=False)

    def next_turn(self, by: int) -> None:
        """Scroll to the next turn, or with ``by = -1`` to the one before."""
        tops = [widget.virtual_region.y for block, widget in self._drawn() if block.is_turn]
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


def _lines_above_chosen(widget: Static) -> int:
    """Return on which line of a block the chosen token is, or nearly so: words are wrapped."""
    content, width = widget.content, max(1, widget.content_size.width)
    assert isinstance(content, Content)
    marked = (span.start for span in content.spans if span.style == _STYLES["chosen"])
    above = content.plain[: next(marked, 0)].split("\n")
    return sum(max(1, -(-cell_len(line) // width)) for line in above) - 1
