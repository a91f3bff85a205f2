"""A run drawn into columns and lines: a function of its state and nothing else. No line is wider
than the screen, and there are never more of them than it has. Curves get room before samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from pathlib import PurePath

from attrs import frozen
from rich.cells import cell_len
from rich.text import Text

from rlc.cli.live.lines import (
    beside,
    chart,
    cut,
    fitted,
    flowed,
    plain,
    row,
    rule,
    sparkline,
    stretched,
    wrapped,
)
from rlc.cli.live.state import (
    MetricCurve,
    RunState,
    StageState,
    evaluation_line,
    failed,
    number,
    remarks,
    service,
    speed,
    staleness,
)
from rlc.plan import elapsed, is_evaluation
from rlc.runtime import Rollout, TrainedSample, Turn

_MARKS = {True: "✓", None: "▶", False: "·"}
_WIDE = 110  # columns from which on curves stand side by side
_LONGEST_CURVE = 60
_EPISODE = 6  # lines that are kept for it, or a quarter of all
_LEAST = 3  # lines that it is shown on at all
_CHARTS = ((3, 8), (3, 6), (2, 6), (1, 6), (0, 1))  # how many curves on how many lines


def frame(state: RunState, width: int, height: int, now: float) -> list[Text]:
    """Return a run as at most ``height`` lines of ``width`` columns, at the time ``now``."""
    top = [_title(state, width, now), *_stages(state, width, height)]
    notes = _notes(state, width, max(2, height // 8))
    stage = state.current
    top.append(_progress(state, stage, width, now) if stage else _waiting(state, now, width))
    room = height - len(top) - len(notes)
    body = _body(state, stage, width, room) if stage is not None else []
    for one in state.stages.values() if stage is None else ():  # evaluations of models as they are
        if is_evaluation(one.plan) and one.last:
            line = evaluation_line(one.plan, int(one.last["step"]), one.last)
            body.append(Text(cut(line, width)))
    if state.has_sample and (left := room - len(body)) >= _LEAST:
        if state.lesson is not None:
            body += _lesson(state.lesson, width, left)
        elif state.episode is not None:
            body += _episode(state.episode, width, left)
    return [*top, *body, *notes][:height]


def _body(state: RunState, stage: StageState, width: int, height: int) -> list[Text]:
    """Return the curves and the numbers of the run, as many as leave room for an episode."""
    watched, others = state.learning(stage), stage.health()
    labels = max(9, min(20, max((cell_len(c.label) for c in (*watched, *others)), default=0)))
    curves = _Curves(watched, others, width, labels)
    numbers = list(_numbers(state, stage, width, labels))
    episode = max(_EPISODE, height // 4) if state.has_sample else 0
    room = height - len(numbers) - episode - 2  # between the parts are empty lines
    charts = (curves.charts(count, high) for count, high in _CHARTS)
    drawings = chain(charts, map(curves.brief, (3, 2)))  # from the largest to the smallest
    drawn = next((lines for lines in drawings if len(lines) <= room), None)
    if drawn is None:
        drawn = curves.fewer(height - len(numbers) - _LEAST)
    lines = [line for part in (drawn, numbers) if part for line in (Text(), *part)]
    if len(lines) + (_LEAST if episode else 0) > height:
        lines = [line for line in lines if line.plain]
    return lines[:height]


@frozen
class _Curves:
    """Curves that a stage is ``watched`` by, and ``others``; ``labels``: columns of their names."""

    watched: Sequence[MetricCurve]
    others: Sequence[MetricCurve]
    width: int
    labels: int

    def charts(self, count: int, height: int) -> list[Text]:
        """Draw the first curves of each kind, if they vary, on several lines, the others on one."""
        wide = self.width >= _WIDE
        column = (self.width - 3) // 2 if wide else self.width
        high = [*takewhile(lambda curve: curve.varies, self.watched[:count])]
        beside_them = [*takewhile(lambda curve: curve.varies, self.others[: len(high) * wide])]
        left, right = (
            [line for c in curves for line in (*self._chart(c, column, height), Text())]
            for curves in (high, beside_them)
        )
        rows = self._rows([curve for curve in self.watched if curve not in high], column)
        more = self._rows([curve for curve in self.others if curve not in beside_them], column)
        if not wide:
            return [*left, *rows, *right, *more]
        while more and len(right) + len(more) > len(left) + len(rows) + 1:  # as even as can be
            rows.append(more.pop())
        return list(beside([left + rows, right + more], column))

    def brief(self, most: int) -> list[Text]:
        """Draw the watched curves on a line each, and write the others on ``most`` lines."""
        return [*self._rows(self.watched, self.width), *self._text("training", self.others, most)]

    def fewer(self, room: int) -> list[Text]:
        """Draw as many of the watched curves as there is room for, and write the others."""
        text = self._text("training", self.others, most=2)
        kept = max(1, room - len(text) - 1)
        more = self._text("also", self.watched[kept:], most=1)
        return [*self._rows(self.watched[:kept], self.width), *more, *text]

    def _text(self, label: str, curves: Sequence[MetricCurve], most: int) -> list[Text]:
        pieces = (f"{curve.label} {curve.last}" for curve in curves)
        lines = flowed(pieces, self.width - self.labels - 2, most)
        named = zip([label, *[""] * len(lines)], lines, strict=False)
        return [row(name, line, self.width, self.labels) for name, line in named]

    def _rows(self, curves: Sequence[MetricCurve], width: int) -> list[Text]:
        room = min(_LONGEST_CURVE, width - self.labels - 2 - 10 - 15)
        lines = []
        for curve in curves:
            text = Text().append(f"{curve.last:>8}  ", "bold" if curve.watched else "")
            if room >= 8 and curve.varies:
                text.append(sparkline(curve.values, room), "green" if curve.watched else "blue")
                text.append(f"  from {number(curve.values[0])}", "dim")
            lines.append(row(curve.label, text, width, self.labels))
        return lines

    def _chart(self, curve: MetricCurve, width: int, height: int) -> Iterator[Text]:
        """Yield a curve on several lines, with its highest and lowest value beside it."""
        room, color = max(1, width - self.labels - 2 - 10 - 2), "green" if curve.watched else "blue"
        sides = [("", "", "")] * height
        sides[0] = ("", number(max(curve.values)), "dim")
        sides[-1] = ("", number(min(curve.values)), "dim")
        sides[height // 2] = (curve.label, curve.last, "bold")
        drawn = chart(stretched(curve.values, room), room, height)
        for bars, (label, value, style) in zip(drawn, sides, strict=True):
            text = Text().append(f"{value:>8}  ", style).append(bars, color)
            yield row(label, text, width, self.labels)


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
    line = Text("   ").join(_stage_word(state, stage) for stage in stages)
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
        line.append(f" of {stage.plan.after}" if stage.plan.after else "", "dim")
    elif values := stage.values(stage.watched[0].key):
        change = f"{number(values[0])} → " if len(values) > 1 else ""
        line.append(f"   {stage.watched[0].label} {change}{number(values[-1])}")
    line.truncate(width, overflow="ellipsis")
    return line


def _waiting(state: RunState, now: float, width: int) -> Text:
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
    left = f"left {stage.time_left}" if stage.time_left else ""
    words = fitted([f"step {stage.done:,} of {stage.steps:,}", doing, left], width)
    bar = min(_LONGEST_CURVE, width - cell_len(words) - 2)
    if bar < 8:
        return Text(words)
    share = stage.done / stage.steps if stage.steps else 0.0
    return _bar(share, bar).append(f"  {words}")


def _bar(share: float, width: int) -> Text:
    full = round(share * width)
    return Text().append("━" * full, "cyan").append("─" * (width - full), "dim")


def _numbers(state: RunState, stage: StageState, width: int, labels: int) -> Iterator[Text]:
    metrics = stage.last
    room = width - labels - 2
    if not metrics:
        return
    spent, share = state.money(stage)
    if spent:
        paid, bar = Text(spent), min(20, room - cell_len(spent) - 3)
        if share is not None and bar >= 5:
            paid.append("   ").append_text(_bar(share, bar))
        yield row("spent", paid, width, labels)
    yield row("speed", fitted(speed(metrics), room), width, labels)
    if queue := fitted([staleness(metrics), *service(metrics)], room):
        yield row("queue", queue, width, labels)
    if stage.failures:
        causes = fitted(failed(stage.failures), room - 30)
        part = sum(stage.failures.values()) / max(1, stage.played)
        again = f"   {stage.retried:,} played again" if stage.retried else ""
        yield row("failed", Text(f"{causes}   {part:.1%} of all{again}", "red"), width, labels)
    elif stage.retried:
        yield row("retried", f"{stage.retried:,} of {stage.played:,} rollouts", width, labels)


def _notes(state: RunState, width: int, most: int) -> list[Text]:
    """Return warnings, the worst first, and the last note, on at most so many lines."""
    stage = state.current
    found = list[str]()
    if stage is not None:
        found += [f"! {finding.text}" for finding in stage.findings]
        if not stage.ended:
            found += [one for one in remarks(stage.last) if "failed" not in one]
    last = [line for note in list(state.notes)[-1:] for line in wrapped(plain(note), width)][:most]
    warned = [line for text in found for line in wrapped(text, width)][: most - len(last)]
    return [Text(line, "yellow") for line in warned] + [Text(line, "cyan") for line in last]


_SIDES = {"reply": "› ", "chosen": "+ ", "rejected": "− "}
_REPLY, _CUT = "› ", "… "  # begin a reply, and a text whose beginning is left out


def _lesson(lesson: TrainedSample, width: int, height: int) -> list[Text]:
    """Return a row that was learnt from: the end of the prompt, and what fits of each reply."""
    room, wide = height - 1, width - len(_REPLY)
    prompt = _text_lines(lesson.prompt, wide)
    replies = [(_SIDES[side], _text_lines(text, wide) or [""]) for side, text in lesson.replies]
    share = max(1, (room - min(len(prompt), max(1, room // 3))) // len(replies))
    shown = [line for mark, lines in replies for line in _marked(lines, share, mark, "default")]
    lines = [rule(f"{lesson.measured}, {PurePath(lesson.place).name}", width)]
    return (lines + _marked(prompt, max(0, room - len(shown)), "  ", "dim") + shown)[:height]


def _episode(rollout: Rollout, width: int, height: int) -> list[Text]:
    """Return the newest episode, or the ends of its last turn, in at most ``height`` lines."""
    turns = len(rollout.turns)
    who = " ".join(filter(None, (rollout.env, rollout.role)))
    title = f"newest episode: {who}, task {rollout.task + 1:,}, "
    if rollout.error is not None:
        title += f"failed ({rollout.cause or 'unknown'})"
    else:
        count = f"{turns} turns" if turns != 1 else "1 turn"
        title += f"reward {number(rollout.reward)}, {count}, {rollout.ended}"
    lines, room = [rule(title, width)], height - 1
    whole = [line for turn in rollout.turns for line in _turn(turn, width, None)]
    if rollout.error is not None:
        whole += [Text(line, "red") for line in wrapped(rollout.error, width)]
    if len(whole) > room and rollout.turns and rollout.error is None:
        last = _turn(rollout.turns[-1], width, room)
        whole = whole[: len(whole) - len(last)][len(whole) - room :] + last
    return lines + whole[-room:] if room > 0 else lines


def _turn(turn: Turn, width: int, room: int | None) -> list[Text]:
    """Return the observation and the reply of a turn, both cut at their beginnings."""
    wide = width - len(_REPLY)
    observed, replied = _text_lines(turn.observation, wide), _text_lines(turn.action, wide) or [""]
    most = None if room is None else max(1, room - min(len(observed), max(1, room // 3)))
    reply = _marked(replied, most, _REPLY, "default")
    return _marked(observed, None if room is None else room - len(reply), "  ", "dim") + reply


def _text_lines(text: str, width: int) -> list[str]:
    return [line for line in wrapped(text.strip(), width) if line]


def _marked(lines: list[str], most: int | None, mark: str, style: str) -> list[Text]:
    """Return the last ``most`` lines, the first with a mark that says whether it is the first."""
    kept = lines if most is None else lines[max(0, len(lines) - most) :]
    if not kept:
        return []
    marks = [mark if len(kept) == len(lines) else _CUT, *["  "] * (len(kept) - 1)]
    return [
        Text().append(mark, "cyan").append(line, style)
        for mark, line in zip(marks, kept, strict=True)
    ]
