"""What the browser says about a run, a stage, a step, a group and an episode: blocks of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from attrs import field, frozen

from rlc.catalog import STAGES
from rlc.cli.browser.contents import RunContents, Step
from rlc.cli.browser.differences import turn_count
from rlc.cli.live.curves import sparkline
from rlc.cli.matches import is_match, match_lines
from rlc.cli.output import Line, Part, visible
from rlc.cli.tokens import TrainedToken
from rlc.cli.transcripts import cause_lines, heading_lines, role_of, turn_lines
from rlc.plan import elapsed
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
    """A part of a page: ``lines`` of text, and what a turn is coloured by, by name.

    ``tokens`` are those of a reply; then ``drawn`` returns the lines with the tokens coloured by
    something, and one of them marked.
    """

    lines: tuple[Line, ...]
    tones: Mapping[str, float | None] = {}
    is_turn: bool = False
    tokens: tuple[TrainedToken, ...] = ()
    drawn: Callable[[str, int | None], Iterable[Line]] | None = field(default=None, eq=False)


def run_page(contents: RunContents) -> Iterator[PageBlock]:
    """Yield how a run stands, and why episodes of it failed."""
    info = contents.info
    about: list[Line] = [("bold", [visible(str(contents.folder))])]
    about.append(("", [info.recipe, ("  " + info.state, _state_style(info.state))]))
    if info.cause:
        about.append(("yellow", [visible(info.cause)]))
    about.append(("dim", [f"spent ${info.spent_usd:.2f}"]))
    for one in info.expectations:
        mark = {True: "✓", False: "✕", None: "·"}[one.holds]
        about.append(
            ("red" if one.holds is False else "", [f"{mark} expected {one.text}: {one.said}"])
        )
    yield PageBlock(tuple(about))
    for stage in info.stages:
        yield PageBlock(tuple(_stage_lines(contents, stage.name)))
    for failure in contents.failures.values():
        where = f" (first in {failure.stage} step {failure.step:,})" if failure.step else ""
        yield PageBlock(
            (("red", [f"✕ {visible(failure.error)}", (where, "dim")]), *cause_lines(failure))
        )


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
    watched = STAGES[info.kind].watched
    names = (
        [watched] if watched else [n for n in (mine[-1] if mine else {}) if n.startswith("eval/")]
    )
    for name in names:
        values = [float(record[name]) for record in mine if is_number(record.get(name))]
        if values:
            ends = f"  {number(values[0])} → {number(values[-1])}" if len(values) > 1 else ""
            yield "", [f"{name}  ", (sparkline(values), "cyan"), ends or f"  {number(values[-1])}"]
    if info.done and info.kind != "eval" and not has_episodes(contents, stage):
        yield "dim", ["This stage learns from data: it has metrics, and no episodes."]


def has_episodes(contents: RunContents, stage: str) -> bool:
    """Whether a stage plays episodes at all, by its plan."""
    return bool(getattr(contents.stage(stage), "envs", ()))


def step_page(contents: RunContents, step: Step) -> Iterator[PageBlock]:
    """Yield how a step went: rewards of its groups by environment, failures, all its metrics."""
    metrics, groups = contents.metrics.get(step, {}), contents.groups(step)
    heads = [head for group in groups.values() for head in group]
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
    causes = dict.fromkeys(head.error for head in heads if head.error is not None)
    if causes:
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
    """Yield the members of a group: what they were asked, how each of them did, how it ended."""
    first = records[0]
    where = f"  {first['stage']} step {first['step']:,}, task {first['task']:,}"
    rewards = [float(record["reward"]) for record in records if record["error"] is None]
    lines: list[Line] = [("bold", [str(first["env"]), (where, "dim")])]
    if rewards:
        equal = (
            ", all equal: nothing to learn" if len(rewards) > 1 and len(set(rewards)) == 1 else ""
        )
        lines.append(("", [f"rewards {min(rewards):.3f} to {max(rewards):.3f}{equal}"]))
    asked = next((r["turns"][0]["observation"] for r in records if r["turns"]), "")
    if asked:
        lines += [("dim", ["first observation:"]), ("cyan", [_preview(asked)])]
    yield PageBlock(tuple(lines))
    for record in records:
        parts: list[Part] = [member_label(record)]
        parts.append((f"  {turn_count(record)}, {record['ended']}", "dim"))
        said: Line = ("red", [f"✕ {visible(record['error'])}"]) if record["error"] else ("", [""])
        if record["turns"] and not record["error"]:
            said = ("", [_preview(record["turns"][-1]["action"])])
        yield PageBlock((("bold", parts), said), _tones(record))


def member_label(record: Record) -> str:
    """Name a member of a group with its reward and advantage, in few characters."""
    who = f"{record['member']} {role_of(record)}".rstrip()
    if record["error"] is not None:
        return f"{who} ✕ failed"
    gained = advantage(record)
    mark = "▲" if gained > 0 else "▼" if gained < 0 else "■"
    told = f" {mark}{gained:+.2f}" if record["advantages"] else ""
    return f"{who} r{float(record['reward']):.3g}{told}{' ↻' if record.get('retried') else ''}"


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
        yield PageBlock(
            tuple(drawn()), _tones(record, place), True, tokens, drawn if tokens else None
        )
    if not record["turns"]:
        yield PageBlock((("dim", ["It has no turns."]),))
    if replies and (said := contents.tokens.remark(record, replies)):
        yield PageBlock((("dim", [said]),))


def _match_blocks(lines: Sequence[Line]) -> Iterator[PageBlock]:
    """Split a match at its moves."""
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
        said: Line = ("", [visible(reply.text) or "(nothing)"])
        yield PageBlock(
            (("bold", [reply.side, f"  reward {signed(reply.reward)}"]), said), tones, True
        )


def _tones(record: Record, turn: int | None = None) -> dict[str, float | None]:
    """Return the advantage and the reward of an episode, or of a turn of it."""
    known = record["advantages"]
    if turn is None:
        return {
            "advantage": advantage(record) if known else None,
            "reward": float(record["reward"]),
        }
    reward = record["turns"][turn]["reward"]
    return {"advantage": known[turn] if turn < len(known) else None, "reward": reward}


def _preview(text: str) -> str:
    text = visible(text.strip())
    return text if len(text) <= _PREVIEW else f"…{text[-_PREVIEW:]}"


def _state_style(state: str) -> str:
    if state in ("failed", "damaged", "nothing learnt"):
        return "red"
    return "green" if state == "finished" else "yellow"
