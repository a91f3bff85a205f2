"""A sample of what is learnt, in so many lines: the newest episode, or a row of the data."""

from __future__ import annotations

from pathlib import PurePath

from rich.text import Text

from rlc.cli.live.lines import rule, wrapped
from rlc.cli.live.state import RunState
from rlc.cli.live.words import number
from rlc.runtime import Rollout, TrainedSample, Turn

_SIDES = {"reply": "› ", "chosen": "+ ", "rejected": "− "}
_REPLY, _CUT = "› ", "… "  # begin a reply, and a text whose beginning is left out


def sample_lines(state: RunState, width: int, height: int) -> list[Text]:
    """Return the row that the running stage has learnt from, or else the newest episode, in at most
    ``height`` lines."""
    if state.lesson is not None:
        return lesson_lines(state.lesson, width, height)
    return episode_lines(state.episode, width, height) if state.episode is not None else []


def lesson_lines(lesson: TrainedSample, width: int, height: int) -> list[Text]:
    """Return a row: the end of the prompt, and of each reply as much as there is room for."""
    room, wide = height - 1, width - len(_REPLY)
    asked = _text_lines(lesson.prompt, wide)
    replies = [(_SIDES[side], _text_lines(text, wide) or [""]) for side, text in lesson.replies]
    share = max(1, (room - min(len(asked), max(1, room // 3))) // len(replies))
    told = [line for mark, lines in replies for line in _marked(lines, share, mark, "default")]
    lines = [rule(f"{lesson.measured}, {PurePath(lesson.place).name}", width)]
    return (lines + _marked(asked, max(0, room - len(told)), "  ", "dim") + told)[:height]


def episode_lines(rollout: Rollout, width: int, height: int) -> list[Text]:
    """Return the newest episode in at most ``height`` lines: all of it if there is room, else its
    last turn, with the end of the prompt and as much of the reply's end as fits."""
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
        before = whole[: len(whole) - len(last)][len(whole) - room :]
        whole = before + last
    return lines + whole[-room:] if room > 0 else lines


def _turn(turn: Turn, width: int, room: int | None) -> list[Text]:
    """Return a turn: what was observed, then the reply, both cut at their beginnings."""
    wide = width - len(_REPLY)
    asked, replied = _text_lines(turn.observation, wide), _text_lines(turn.action, wide) or [""]
    most = None if room is None else max(1, room - min(len(asked), max(1, room // 3)))
    reply = _marked(replied, most, _REPLY, "default")
    return _marked(asked, None if room is None else room - len(reply), "  ", "dim") + reply


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
