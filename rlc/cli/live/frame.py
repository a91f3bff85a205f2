"""A run drawn into so many columns and lines: a function of its state and nothing else.

What matters most has a place at 80 × 24; more room is given to curves, then to the sample episode.
No line is wider than the screen, and there are never more of them than it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import PurePath

from rich.cells import cell_len
from rich.text import Text

from rlc.cli.live.curves import chart, sparkline, stretched
from rlc.cli.live.episode import sample_lines
from rlc.cli.live.lines import beside, cut, fitted, flowed, plain, row, wrapped
from rlc.cli.live.state import RunState, StageState, measured
from rlc.cli.live.words import (
    MetricCurve,
    budget_share,
    evaluation_line,
    failed,
    health,
    learning,
    money,
    number,
    remarks,
    service,
    speed,
    staleness,
    time_left,
)
from rlc.plan import elapsed, is_evaluation

_MARKS = {True: "✓", None: "▶", False: "·"}
_WIDE = 110  # columns from which on curves stand side by side
_LONGEST_CURVE = 60
_EPISODE = 6  # lines that are kept for it, or a quarter of all
_LEAST = 3  # lines that it is shown on at all

Drawn = Callable[[Sequence[MetricCurve], Sequence[MetricCurve], int, int], list[Text]]


def frame(state: RunState, width: int, height: int, now: float) -> list[Text]:
    """Return a run as at most ``height`` lines of at most ``width`` columns.

    ``now`` is a time of the clock that the state is timed by.
    """
    top = [_title(state, width, now), *_stages(state, width, height)]
    notes = _notes(state, width, max(2, height // 8))
    stage = state.current
    top.append(_progress(state, stage, width, now) if stage else _waiting(state, now, width))
    room = height - len(top) - len(notes)
    body = _body(state, stage, width, room) if stage else list(_results(state, width))
    if state.has_sample and (left := room - len(body)) >= _LEAST:
        body += sample_lines(state, width, left)
    return [*top, *body, *notes][:height]


def _body(state: RunState, stage: StageState, width: int, height: int) -> list[Text]:
    """Return the curves and the numbers of the run, as many as leave room for an episode."""
    watched, others = learning(state), health(stage)
    labels = max(9, min(20, max((cell_len(c.label) for c in (*watched, *others)), default=0)))
    numbers = list(_numbers(state, stage, width, labels))
    episode = max(_EPISODE, height // 4) if state.has_sample else 0
    room = height - len(numbers) - episode - 2  # between the parts are empty lines
    curves = list[Text]()
    for draw in _DRAWN:
        curves = draw(watched, others, width, labels)
        if len(curves) <= room:
            break
    else:
        curves = _fewer(watched, others, width, labels, height - len(numbers) - _LEAST)
    lines = [line for part in (curves, numbers) if part for line in (Text(), *part)]
    if len(lines) + (_LEAST if episode else 0) > height:
        lines = [line for line in lines if line.plain]
    return lines[:height]


# Curves ----------------------------------------------------------------------------------------


def _charts(count: int, height: int) -> Drawn:
    """Return what draws the first curves of each kind, if they vary, on several lines, and the
    others on one."""

    def draw(
        watched: Sequence[MetricCurve], others: Sequence[MetricCurve], width: int, labels: int
    ) -> list[Text]:
        wide, column = width >= _WIDE, width if width < _WIDE else (width - 3) // 2
        high = [*takewhile(lambda curve: curve.varies, watched[:count])]
        beside_them = [*takewhile(lambda curve: curve.varies, others[: len(high) * wide])]
        left, right = (
            [line for c in curves for line in (*_chart(c, column, labels, height), Text())]
            for curves in (high, beside_them)
        )
        rows = _rows([curve for curve in watched if curve not in high], column, labels)
        more = _rows([curve for curve in others if curve not in beside_them], column, labels)
        if not wide:
            return [*left, *rows, *right, *more]
        while more and len(right) + len(more) > len(left) + len(rows) + 1:  # as even as can be
            rows.append(more.pop())
        return list(beside([left + rows, right + more], column))

    return draw


def _brief(most: int) -> Drawn:
    """Return what draws the watched curves on a line each, and writes the others as text."""

    def draw(
        watched: Sequence[MetricCurve], others: Sequence[MetricCurve], width: int, labels: int
    ) -> list[Text]:
        rows = _rows(watched, width, labels)
        return [*rows, *_as_text("training", others, width, labels, most)]

    return draw


# What is drawn if there is room for it, the largest first.
_DRAWN: tuple[Drawn, ...] = (
    *(_charts(count, height) for count, height in ((3, 8), (3, 6), (2, 6), (1, 6), (0, 1))),
    _brief(3),
    _brief(2),
)


def _fewer(
    watched: Sequence[MetricCurve],
    others: Sequence[MetricCurve],
    width: int,
    labels: int,
    room: int,
) -> list[Text]:
    """Return as many of the curves as there is room for, and the others as text."""
    text = _as_text("training", others, width, labels, most=2)
    kept = max(1, room - len(text) - 1)
    more = _as_text("also", watched[kept:], width, labels, most=1)
    return [*_rows(watched[:kept], width, labels), *more, *text]


def _as_text(
    label: str, curves: Sequence[MetricCurve], width: int, labels: int, most: int
) -> list[Text]:
    """Return the newest values of some curves as text."""
    lines = flowed((f"{curve.label} {curve.last}" for curve in curves), width - labels - 2, most)
    return [row("" if at else label, line, width, labels) for at, line in enumerate(lines)]


def _rows(curves: Sequence[MetricCurve], width: int, labels: int) -> list[Text]:
    """Return each curve on a line: name, newest value, curve, first value."""
    room = min(_LONGEST_CURVE, width - labels - 2 - 10 - 15)
    lines = []
    for curve in curves:
        text = Text().append(f"{curve.last:>8}  ", "bold" if curve.watched else "")
        if room >= 8 and curve.varies:
            text.append(sparkline(curve.values, room), _color(curve))
            text.append(f"  from {number(curve.values[0])}", "dim")
        lines.append(row(curve.label, text, width, labels))
    return lines


def _chart(curve: MetricCurve, width: int, labels: int, height: int) -> list[Text]:
    """Return a curve on several lines, with its highest and lowest value beside it."""
    room = max(1, width - labels - 2 - 10 - 2)
    drawn = chart(stretched(curve.values, room), room, height)
    sides = [("", "", "")] * height
    sides[0], sides[-1] = (
        ("", number(max(curve.values)), "dim"),
        ("", number(min(curve.values)), "dim"),
    )
    sides[height // 2] = (curve.label, curve.last, "bold")
    return [
        row(label, Text().append(f"{value:>8}  ", style).append(bars, _color(curve)), width, labels)
        for bars, (label, value, style) in zip(drawn, sides, strict=True)
    ]


def _color(curve: MetricCurve) -> str:
    return "green" if curve.watched else "blue"


# The rest --------------------------------------------------------------------------------------


def _title(state: RunState, width: int, now: float) -> Text:
    running = elapsed(max(0.0, round(now - state.began)))
    room = width - cell_len(running) - 2
    recipe = PurePath(state.plan.recipe).name
    parts = (plain(recipe), f"seed {state.plan.seed}", plain(str(state.folder)))
    title = cut(" · ".join(parts), room)
    gap = " " * (width - cell_len(title) - cell_len(running))
    return Text.assemble((title, "bold"), gap, (running, "dim"))


def _stages(state: RunState, width: int, height: int) -> list[Text]:
    """Return the stages: done, running and to come; a line each where there is room for it."""
    stages = list(state.stages.values())
    if len(stages) > 1 and height >= 24 + 4 * len(stages):
        return [_stage_row(state, stage, width) for stage in stages]
    line = Text()
    for number_, stage in enumerate(stages):
        line.append("   " if number_ else "")
        line.append_text(_stage_word(state, stage))
    line.truncate(width, overflow="ellipsis")
    return [line]


def _stage_word(state: RunState, stage: StageState) -> Text:
    runs = stage is state.current and not stage.ended
    mark = _MARKS[None if runs else stage.ended]
    style = "bold cyan" if runs else "green" if stage.ended else "dim"
    steps = f" {stage.done:,}/{stage.steps:,}" if stage.steps is not None else ""
    return Text(f"{mark} {stage.plan.name}{steps}", style)


def _stage_row(state: RunState, stage: StageState, width: int) -> Text:
    line = _stage_word(state, stage)
    line.append(f"   {stage.plan.kind}", "dim")
    if not stage.plan.trains:
        subject = f" of {stage.plan.after}" if stage.plan.after else ""
        line.append(subject, "dim")
    elif values := stage.values(measured(stage)[0]):
        change = f"{number(values[0])} → " if len(values) > 1 else ""
        line.append(f"   {measured(stage)[1]} {change}{number(values[-1])}")
    line.truncate(width, overflow="ellipsis")
    return line


def _results(state: RunState, width: int) -> Iterator[Text]:
    """Yield the results of evaluations of models as they are."""
    for stage in state.stages.values():
        if is_evaluation(stage.plan) and stage.last:
            line = evaluation_line(stage.plan, int(stage.last["step"]), stage.last)
            yield Text(cut(line, width))


def _waiting(state: RunState, now: float, width: int) -> Text:
    """Return what is waited for, and for how long or how far it is."""
    done, planned = state.playing
    took = now - state.since
    so_far = f": {done:,} of {planned:,}" if planned else " …"
    so_far += f"   {elapsed(round(took))}" if took >= 2 else ""
    return Text(cut(f"{state.waiting or 'beginning'}{so_far}", width), "yellow")


def _progress(state: RunState, stage: StageState, width: int, now: float) -> Text:
    """Return a bar of the steps, and what the running one does."""
    done, planned = state.playing
    if state.waiting and (not planned or not stage.done):
        return _waiting(state, now, width)
    kind = "groups" if stage.plan.rollouts else "episodes"
    if planned and state.waiting:
        doing = f"{state.waiting}: {done:,} of {planned:,}"
    elif planned:
        first = "first rollouts: " if not stage.done else ""
        doing = f"{first}{done:,} of {planned:,} {kind}"
    else:
        doing = "" if stage.done else "first rollouts …" if kind == "groups" else "first step …"
    left = time_left(stage)
    said = [f"step {stage.done:,} of {stage.steps:,}", doing, f"left {left}" if left else ""]
    words = fitted(said, width)
    bar = min(_LONGEST_CURVE, width - cell_len(words) - 2)
    if bar < 8:
        return Text(words)
    share = stage.done / stage.steps if stage.steps else 0.0
    return _bar(share, bar).append(f"  {words}")


def _bar(share: float, width: int) -> Text:
    full = round(share * width)
    return Text().append("━" * full, "cyan").append("─" * (width - full), "dim")


def _numbers(state: RunState, stage: StageState, width: int, labels: int) -> Iterator[Text]:
    """Yield what the run takes: money, time, the service, and what failed."""
    metrics = stage.last
    room = width - labels - 2
    if not metrics:
        return
    if spent := money(state):
        paid = Text(spent)
        share, bar = budget_share(state), min(20, room - cell_len(spent) - 3)
        if share is not None and bar >= 5:
            paid.append("   ").append_text(_bar(share, bar))
        yield row("spent", paid, width, labels)
    yield row("speed", fitted(speed(metrics), room), width, labels)
    if queue := fitted([staleness(metrics), *service(metrics)], room):
        yield row("queue", queue, width, labels)
    if stage.failures:
        causes = fitted(failed(stage.failures), room - 30)
        share = sum(stage.failures.values()) / max(1, stage.played)
        again = f"   {stage.retried:,} played again" if stage.retried else ""
        yield row("failed", Text(f"{causes}   {share:.1%} of all{again}", "red"), width, labels)
    elif stage.retried:
        yield row("retried", f"{stage.retried:,} of {stage.played:,} rollouts", width, labels)


def _notes(state: RunState, width: int, most: int) -> list[Text]:
    """Return what to look out for, the worst first, and what was said last, on so many lines."""
    stage = state.current
    found = list[str]()
    if stage is not None:
        found += [f"! {finding.text}" for finding in stage.findings]
        if not stage.ended:
            found += [one for one in remarks(stage.last) if "failed" not in one]
    said = [line for note in list(state.notes)[-1:] for line in wrapped(plain(note), width)][:most]
    warned = [line for text in found for line in wrapped(text, width)][: most - len(said)]
    return [Text(line, "yellow") for line in warned] + [Text(line, "cyan") for line in said]
