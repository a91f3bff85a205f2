"""One run: the list of what is in it, and a page about what is chosen there."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static, Tree
from textual.worker import Worker, get_current_worker

from rlc.cli.browser import pages
from rlc.cli.browser.comparison import CompareScreen
from rlc.cli.browser.contents import Query, QueryError, RunContents, parse_query
from rlc.cli.browser.outline import Outline, OutlinePlace
from rlc.cli.browser.pages import COLORINGS, PageBlock, PageView
from rlc.cli.transcripts import LEGEND
from rlc.report.episodes import last_step

_OFFSET = attrgetter("offset")  # of an episode in its file


class RunRead(Message):
    """More of the run has been read."""


class RunScreen(Screen[None]):
    """Shows a run, also while it goes on: looks at it ``every`` so many seconds, or on demand."""

    AUTO_FOCUS = "#list"
    BINDINGS = [
        Binding("slash", "search", "search", key_display="/"),
        Binding("b", "best(1)", "best/worst", key_display="b w"),
        Binding("w", "best(-1)", "worst", show=False),
        Binding("x", "failed", "failed"),
        Binding("c", "compare", "compare"),
        Binding("a", "color", "colour"),
        Binding("f", "follow", "follow", show=False),
        Binding("z", "alone", "zoom", show=False),
        Binding("full_stop", "token(1)", "token", key_display=", ."),
        Binding("comma", "token(-1)", "token before", show=False),
        Binding("n", "turn(1)", "next turn", show=False),
        Binding("p", "turn(-1)", "turn before", show=False),
        Binding("j", "scroll(1)", "down", show=False),
        Binding("k", "scroll(-1)", "up", show=False),
        Binding("pagedown", "scroll_page(1)", "page down", show=False, priority=True),
        Binding("pageup", "scroll_page(-1)", "page up", show=False, priority=True),
        Binding("tab", "other_pane", "page", show=False, priority=True),
        Binding("escape", "back", "back", show=False),
    ]

    def __init__(self, folder: Path, every: float | None) -> None:
        super().__init__()
        self.contents, self.every = RunContents(folder), every
        self.query_text, self.following = "", False
        self._reader: Worker[None] | None = None
        self._newest: tuple[str, int] | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="panes"):
            yield Outline(self.contents, id="list")
            yield PageView(id="page")
        yield Static(id="status", markup=False)
        yield Input(placeholder='words  env:NAME  reward<0.5  is:failed  "so the"', id="search")
        yield Footer(compact=True)

    @property
    def outline(self) -> Outline:
        return self.query_one(Outline)

    @property
    def page(self) -> PageView:
        return self.query_one(PageView)

    def on_mount(self) -> None:
        self.outline.grow()
        self._newest = self._last()
        last = last_step(list(self.contents.metrics.values()), None)
        step = (last.stage or "", last.step or 0) if last is not None else self._newest
        if step is not None:
            self.outline.go_to_step(step)
        self._update_status()
        self.read_on()
        if self.every is not None:
            self.set_interval(self.every, self.read_on)

    def read_on(self) -> None:
        """Read what has been written since, unless a thread is at it."""
        if self._reader is None or self._reader.is_finished:
            self._reader = self._read()

    @work(thread=True, exclusive=True, group="read")
    def _read(self) -> None:
        worker = get_current_worker()
        for _ in self.contents.read_on(lambda: worker.is_cancelled):
            if not worker.is_cancelled:
                self.post_message(RunRead())

    @on(RunRead)
    def _grow(self) -> None:
        self.outline.grow()
        newest = self._last()
        if self.following and newest is not None and newest != self._newest:
            self.outline.go_to_step(newest)
        self._newest = newest
        if self.outline.place.head is None and self.outline.place.pair is None:
            self._show(self.outline.place)  # the page of a step may have changed
        self._update_status()

    def _last(self) -> tuple[str, int] | None:
        return next(reversed(self.contents.metrics), None)

    def _update_status(self) -> None:
        contents = self.contents
        parts: list[str] = [contents.info.state]
        if (share := contents.read_share()) < 1:
            parts.append(f"reading, {share:.0%}")
        found = f"{contents.found:,} of " if self.query_text else ""
        query = f": {self.query_text}" if self.query_text else ""
        parts.append(f"{found}{len(contents.heads):,} episodes{query}")
        coloring = self.page.coloring
        legend = f": {LEGEND[coloring]}" if self.page.has_tokens and coloring in LEGEND else ""
        parts.append(f"coloured by {coloring}{legend}")
        parts += ["following"] if self.following else []
        self.query_one("#status", Static).update(self.page.token or "  ·  ".join(parts))

    @on(Tree.NodeHighlighted)
    def _chosen(self, event: Tree.NodeHighlighted[OutlinePlace]) -> None:
        if event.node.data is not None:
            self._show(event.node.data)

    @work(exclusive=True, group="page")
    async def _show(self, place: OutlinePlace) -> None:
        try:
            blocks = tuple(self._blocks(place))
        except (LookupError, TypeError, ValueError) as error:  # edited, or of another version
            why = f"This record cannot be read: {type(error).__name__}: {error}"
            blocks = (PageBlock((("yellow", [why]),)),)
        if blocks != self.page.blocks:
            await self.page.show(blocks)
            self._update_status()

    def _blocks(self, place: OutlinePlace) -> Iterator[PageBlock]:
        if place.head is not None:
            yield from pages.episode_page(self.contents, place.head)
        elif place.pair is not None:
            yield from pages.comparison_page(place.pair)
        elif not place.stage:
            yield from pages.run_page(self.contents)
        elif place.step is None:
            yield from pages.stage_page(self.contents, place.stage)
        elif place.group is None:
            yield from pages.step_page(self.contents, (place.stage, place.step))
        else:
            heads = self.contents.groups((place.stage, place.step)).get(place.group, [])
            records = [r for head in heads if (r := self.contents.record(head)) is not None]
            if records:
                yield from pages.group_page(records)

    def action_search(self) -> None:
        self.add_class("searching")
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _searched(self, event: Input.Submitted) -> None:
        try:
            query = parse_query(event.value)
        except QueryError as error:
            self.notify(error.hint or "", title=error.message, severity="error")
            return
        self._look_for(query, event.value.strip())

    def _look_for(self, query: Query, text: str) -> None:
        self.remove_class("searching")
        self.outline.focus()
        self.query_text, self.contents.query = text, query
        self._reader = self._read()
        self._update_status()

    def action_back(self) -> None:
        """Leave the search, show all again, or go back to the list or to the runs."""
        if self.has_class("searching"):
            self.remove_class("searching")
            self.outline.focus()
        elif self.has_class("alone"):
            self.action_alone()
        elif self.page.chosen is not None:
            self.page.chosen = None
            self.page.color()
            self._update_status()
        elif self.query_text:
            self.query_one(Input).value = ""
            self._look_for(Query(), "")
        elif self.focused is not self.outline:
            self.outline.focus()
        elif len(self.app.screen_stack) > 2:
            self.dismiss()

    def action_best(self, sign: int) -> None:
        place, contents = self.outline.place, self.contents
        steps = [key for key in tuple(contents.shown) if place.stage in ("", key[0])]
        if place.step is not None:
            steps = [key for key in steps if key[1] == place.step]
        heads = [head for key in steps for head in contents.episodes(key)]
        played = [head for head in heads if head.error is None]
        if played:
            self.outline.go_to(max(played, key=lambda head: sign * head.reward))
        else:
            self.notify("There is no episode here that was played to its end.")

    def action_failed(self) -> None:
        """Go to the next failed episode in the file, or else to the first."""
        place, contents = self.outline.place, self.contents
        heads = [head for step in tuple(contents.shown) for head in contents.episodes(step)]
        failed = sorted((head for head in heads if head.error is not None), key=_OFFSET)
        at = -1  # before the place, as the first failed one may be in it
        if place.head is not None:
            at = place.head.offset
        elif place.step is not None:
            step = (place.stage, place.step)
            here = contents.groups(step).get(place.group, []) if place.group else None
            offsets = map(_OFFSET, contents.episodes(step) if here is None else here)
            at = min(offsets, default=0) - 1
        if failed:
            self.outline.go_to(next((head for head in failed if head.offset > at), failed[0]))
        else:
            self.notify("No episode failed.")

    def action_compare(self) -> None:
        place, contents = self.outline.place, self.contents
        if place.group is None or place.step is None:
            self.notify("Choose a group, or one of its members.")
            return
        shown = contents.groups((place.stage, place.step)).get(place.group, [])
        this = place.head or max(shown, key=lambda head: head.reward, default=None)
        heads = [head for head in contents.group(this) if head.role == this.role] if this else []
        members = [(head, contents.record(head)) for head in heads]
        known = [(head, record) for head, record in members if record is not None]
        if len(known) < 2:
            self.notify("It is alone: there is nothing to compare it with.")
            return
        at = next((i for i, (head, _) in enumerate(known) if head is this), 0)
        self.app.push_screen(CompareScreen([record for _, record in known], at))

    def action_color(self) -> None:
        page = self.page
        known = [one for one in COLORINGS if one != "ratio" or page.has_tokens]
        at = known.index(page.coloring) if page.coloring in known else 0
        page.coloring = known[(at + 1) % len(known)]
        page.color()
        self._update_status()

    def action_follow(self) -> None:
        self.following = not self.following
        if self.following and self._newest is not None:
            self.outline.go_to_step(self._newest)
        self._update_status()

    def action_alone(self) -> None:
        self.toggle_class("alone")
        (self.page if self.has_class("alone") else self.outline).focus()

    def action_turn(self, by: int) -> None:
        self.page.next_turn(by)

    def action_token(self, by: int) -> None:
        if not self.page.has_tokens:
            head = self.outline.place.head
            record = self.contents.record(head) if head is not None else None
            why = self.contents.tokens.remark(record, {}) if record else ""
            self.notify(why or "There are no single tokens here: choose an episode.")
        self.page.next_token(by)
        self._update_status()

    def action_scroll(self, by: int) -> None:
        self.page.scroll_relative(y=2 * by, animate=False)

    def action_scroll_page(self, by: int) -> None:
        self.page.scroll_relative(y=by * max(1, self.page.size.height - 2), animate=False)

    def action_other_pane(self) -> None:
        (self.page if self.focused is self.outline else self.outline).focus()
