"""Pages of the browser: blocks of lines, and the widget that shows them coloured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from attrs import field, frozen
from rich.cells import cell_len
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rlc.cli.browser.contents import RunContents, Step
from rlc.cli.live.lines import sparkline
from rlc.cli.output import Line, Part, visible
from rlc.cli.transcripts import (
    TOKEN_COLORINGS,
    TrainedToken,
    cause_lines,
    heading_lines,
    is_match,
    match_lines,
    role_of,
    token_line,
    turn_count,
    turn_lines,
)
from rlc.plan import elapsed, in_dollars
from rlc.report import number, signed
from rlc.report.episodes import ShownEpisode, advantage
from rlc.runtime import EpisodeHead, Record, is_number

if TYPE_CHECKING:
    from rlc.report.episodes import StepComparison

# What the turns of an episode are coloured by, and single tokens.
COLORINGS = ("advantage", "ratio", "reward", "nothing")
_PREVIEW = 600  # characters of a reply in the page of a group


@frozen
class PageBlock:
    """Lines of a page, and the values that a turn is coloured by. With ``tokens``, ``drawn``
    returns the lines with each token coloured, and one of them marked."""

    lines: tuple[Line, ...]
    tones: Mapping[str, float | None] = {}
    is_turn: bool = False
    tokens: tuple[TrainedToken, ...] = ()
    drawn: Callable[[str, int | None], Iterable[Line]] | None = field(default=None, eq=False)


def run_page(contents: RunContents) -> Iterator[PageBlock]:
    """Yield how a run stands, and why episodes of it failed."""
    info = contents.info
    bad = info.state in ("failed", "damaged", "nothing learnt")
    style = "red" if bad else "green" if info.state == "finished" else "yellow"
    about: list[Line] = [("bold", [visible(str(contents.folder))])]
    about.append(("", [info.recipe, (f"  {info.state}", style)]))
    if info.cause:
        about.append(("yellow", [visible(info.cause)]))
    about.append(("dim", [f"spent {in_dollars(info.spent_usd)}"]))
    for one in info.expectations:
        mark, style = {True: ("✓", ""), False: ("✕", "red"), None: ("·", "")}[one.holds]
        about.append((style, [f"{mark} expected {one.text}: {one.said}"]))
    yield PageBlock(tuple(about))
    for stage in info.stages:
        yield PageBlock(tuple(_stage_lines(contents, stage.name)))
    for failure in contents.failures.values():
        where = f" (first in {failure.stage} step {failure.step:,})" if failure.step else ""
        heading: Line = ("red", [f"✕ {visible(failure.error)}", (where, "dim")])
        yield PageBlock((heading, *cause_lines(failure)))


def stage_page(contents: RunContents, stage: str) -> Iterator[PageBlock]:
    """Yield how a stage goes, and its last metrics."""
    yield PageBlock(tuple(_stage_lines(contents, stage)))
    steps = [step for name, step in tuple(contents.metrics) if name == stage]
    if steps:
        yield from step_page(contents, (stage, max(steps)))


def _stage_lines(contents: RunContents, stage: str) -> Iterator[Line]:
    info = next((one for one in contents.info.stages if one.name == stage), None)
    if info is None:
        yield "bold", [stage]
        return
    unit = "evaluations" if info.kind == "eval" else "steps"
    yield "bold", [stage, (f"  {info.kind}, {info.done:,} of {info.total:,} {unit}", "dim")]
    mine = [r for (name, _), r in sorted(contents.metrics.items()) if name == stage]
    last = mine[-1] if mine else {}
    watched = [one.key for one in info.watched]
    for name in watched or [n for n in last if n.startswith("eval/")]:
        values = [float(record[name]) for record in mine if is_number(record.get(name))]
        if values:
            ends = f"  {number(values[0])} → {number(values[-1])}" if len(values) > 1 else ""
            yield "", [f"{name}  ", (sparkline(values), "cyan"), ends or f"  {number(values[-1])}"]
    if info.done and info.kind != "eval" and not has_episodes(contents, stage):
        yield "dim", ["This stage learns from data: it has metrics, and no episodes."]


def has_episodes(contents: RunContents, stage: str) -> bool:
    """Return whether a stage plays episodes, by its plan."""
    return bool(getattr(contents.stage(stage), "envs", ()))


def step_page(contents: RunContents, step: Step) -> Iterator[PageBlock]:
    """Yield how a step went: rewards of its groups by environment, failures, all its metrics."""
    metrics, heads = contents.metrics.get(step, {}), contents.episodes(step)
    lines: list[Line] = [("bold", [step[0], f" step {step[1]:,}"])]
    if not heads and has_episodes(contents, step[0]):
        lines.append(("dim", ["No episode of this step is here (yet)."]))
    for env in dict.fromkeys(head.env for head in heads):
        mine = [head for head in heads if head.env == env]
        rewards = [head.reward for head in mine if head.error is None]
        failed = len(mine) - len(rewards)
        parts: list[Part] = [f"{env}  ", (f"{len(mine):,} episodes", "dim")]
        if rewards:
            low, mean, high = min(rewards), fmean(rewards), max(rewards)
            parts.append(f"  reward {mean:.3f}")
            parts.append((f" ({low:.3f} to {high:.3f})", "dim"))
        if failed:
            parts.append((f"  ✕ {failed:,} failed", "red"))
        lines.append(("", parts))
    yield PageBlock(tuple(lines))
    if causes := dict.fromkeys(head.error for head in heads if head.error is not None):
        yield PageBlock(tuple(("red", [f"✕ {visible(cause)}"]) for cause in causes))
    shown = {k: v for k, v in metrics.items() if k not in ("stage", "step")}
    if shown:
        width = max(map(len, shown))
        rows: list[Line] = [
            ("", [(f"{name:<{width}}  ", "dim"), _value(name, value)])
            for name, value in shown.items()
        ]
        yield PageBlock((("bold", ["metrics"]), *rows))


def _value(name: str, value: object) -> str:
    if not is_number(value):
        return "not defined" if value is None else str(value)
    return elapsed(float(value)) if name.startswith("time/") else number(float(value))  # type: ignore[arg-type]


def group_page(records: Sequence[Record]) -> Iterator[PageBlock]:
    """Yield the first observation of a group, and how each of its members did."""
    first = records[0]
    where = f"  {first['stage']} step {first['step']:,}, task {first['task']:,}"
    rewards = [float(record["reward"]) for record in records if record["error"] is None]
    lines: list[Line] = [("bold", [str(first["env"]), (where, "dim")])]
    if rewards:
        equal = len(rewards) > 1 and len(set(rewards)) == 1
        text = f"rewards {min(rewards):.3f} to {max(rewards):.3f}"
        lines.append(("", [text + ", all equal: nothing to learn" * equal]))
    if prompt := next((r["turns"][0]["observation"] for r in records if r["turns"]), ""):
        lines += [("dim", ["first observation:"]), ("cyan", [_preview(prompt)])]
    yield PageBlock(tuple(lines))
    for record in records:
        parts: list[Part] = [member_label(record)]
        parts.append((f"  {turn_count(record)}, {record['ended']}", "dim"))
        last: Line = ("", [_preview(record["turns"][-1]["action"]) if record["turns"] else ""])
        if record["error"]:
            last = ("red", [f"✕ {visible(record['error'])}"])
        yield PageBlock((("bold", parts), last), _tones(record))


def member_label(record: Record) -> str:
    """Return a member of a group with its reward and advantage, in few characters."""
    who = f"{record['member']} {role_of(record)}".rstrip()
    if record["error"] is not None:
        return f"{who} ✕ failed"
    gained = advantage(record)
    mark = "▲" if gained > 0 else "▼" if gained < 0 else "■"
    gain = f" {mark}{gained:+.2f}" if record["advantages"] else ""
    return f"{who} r{float(record['reward']):.3g}{gain}{' ↻' if record.get('retried') else ''}"


def episode_page(contents: RunContents, head: EpisodeHead) -> Iterator[PageBlock]:
    """Yield one episode: how it went, why it failed, and its turns; a match with all its seats."""
    record = contents.record(head)
    if record is None:
        yield PageBlock((("yellow", ["This episode is no longer in the file."]),))
        return
    seats = contents.games.get((head.stage, head.env))
    parts = [part for part in contents.match(head) if part["turns"]] if is_match(record) else []
    if parts and seats is not None:
        yield from _match_blocks([*match_lines(parts, *seats)])
        return
    lines = [*heading_lines(ShownEpisode(record))]
    if (failure := contents.failures.get(str(record.get("failure")))) is not None:
        lines += cause_lines(failure)
    yield PageBlock(tuple(lines))
    system, replies = contents.systems.get(head.env), contents.tokens.replies(record)
    for place in range(len(record["turns"])):
        tokens = replies.get(place, ())
        drawn = partial(turn_lines, record, place, system, tokens)
        lines, tones = [*drawn()], _tones(record, place)
        yield PageBlock(tuple(lines), tones, True, tokens, drawn if tokens else None)
    if not record["turns"]:
        yield PageBlock((("dim", ["It has no turns."]),))
    if replies and (remark := contents.tokens.remark(record, replies)):
        yield PageBlock((("dim", [remark]),))


def _match_blocks(lines: Sequence[Line]) -> Iterator[PageBlock]:
    starts = [i for i, (_, parts) in enumerate(lines) if str(parts[0]).startswith("── move")]
    yield PageBlock(tuple(lines[: starts[0] if starts else None]))
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield PageBlock(tuple(lines[start:end]), is_turn=True)


def comparison_page(one: StepComparison) -> Iterator[PageBlock]:
    """Yield a preference that a step compared."""
    where = f"  {one.stage} step {one.step:,}, {one.place}"
    margin: Line = ("", ["margin ", (signed(one.margin), "green" if one.margin > 0 else "red")])
    yield PageBlock((("bold", ["preference", (where, "dim")]), margin))
    yield PageBlock((("dim", ["prompt:"]), ("cyan", [visible(one.prompt)])))
    for reply in one.replies:
        tones = {"advantage": reply.reward, "reward": reply.reward}
        heading: Line = ("bold", [reply.side, f"  reward {signed(reply.reward)}"])
        text: Line = ("", [visible(reply.text) or "(nothing)"])
        yield PageBlock((heading, text), tones, True)


def _tones(record: Record, turn: int | None = None) -> dict[str, float | None]:
    """Return the advantage and the reward of an episode, or of a turn of it."""
    known = record["advantages"]
    if turn is None:
        gain = advantage(record) if known else None
        return {"advantage": gain, "reward": float(record["reward"])}
    reward = record["turns"][turn]["reward"]
    return {"advantage": known[turn] if turn < len(known) else None, "reward": reward}


def _preview(text: str) -> str:
    text = visible(text.strip())
    return text if len(text) <= _PREVIEW else f"…{text[-_PREVIEW:]}"


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
    return Content("\n").join(_line(style, parts) for style, parts in lines)


def _line(style: str, parts: Sequence[Part]) -> Content:
    pairs = [(part, style) if isinstance(part, str) else part for part in parts]
    # A text that some model wrote: no markup of it counts.
    return Content.assemble(*((text, _STYLES[named]) for text, named in pairs if text))


class PageView(VerticalScroll):
    """The blocks of a page, coloured by ``coloring``. ``chosen``: block and place of a token."""

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
        """The chosen token in a line; empty if there is none."""
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
        """Colour the blocks anew; a thicker bar beside a good one can be seen without colour."""
        for at, (block, widget) in enumerate(self._drawn()):
            tone = block.tones.get(self.coloring)
            widget.set_class(tone is not None and tone > 0, "good")
            widget.set_class(tone is not None and tone < 0, "bad")
            widget.set_class(block.is_turn and not tone, "even")
            if block.drawn is not None:
                chosen = self.chosen[1] if self.chosen and self.chosen[0] == at else None
                plain = self.coloring not in TOKEN_COLORINGS and chosen is None
                lines = block.lines if plain else block.drawn(self.coloring, chosen)
                widget.update(content_of(lines))

    def _drawn(self) -> Iterator[tuple[PageBlock, Static]]:
        return zip(self.blocks, self.query(".block").results(Static), strict=True)

    def next_token(self, by: int) -> None:
        """Choose the next token (``by = -1``: the one before), or the first on the screen."""
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
        return "\n".join(content_of(block.lines).plain for block in self.blocks)


def _lines_above_chosen(widget: Static) -> int:
    """Return on which line of a block the chosen token is, or nearly so: words are wrapped."""
    content, width = widget.content, max(1, widget.content_size.width)
    assert isinstance(content, Content)
    marked = (span.start for span in content.spans if span.style == _STYLES["chosen"])
    above = content.plain[: next(marked, 0)].split("\n")
    return sum(max(1, -(-cell_len(line) // width)) for line in above) - 1
