"""An episode in so many lines: the end of what it was asked, and what it replied."""

from __future__ import annotations

from rich.text import Text

from rlc.cli.live.lines import rule, wrapped
from rlc.cli.live.words import number
from rlc.runtime.records import Rollout, Turn

_REPLY, _CUT = "› ", "… "  # begin a reply, and a text whose beginning is left out


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
    asked = [line for line in wrapped(turn.observation.strip(), wide) if line]
    replied = [line for line in wrapped(turn.action.strip(), wide) if line] or [""]
    most = None if room is None else max(1, room - min(len(asked), max(1, room // 3)))
    reply = _marked(replied, most, _REPLY, "default")
    return _marked(asked, None if room is None else room - len(reply), "  ", "dim") + reply


def _marked(lines: list[str], most: int | None, mark: str, style: str) -> list[Text]:
    """Return the last ``most`` lines, the first with a mark that says whether it is the first."""
    kept = lines if most is None else lines[max(0, len(lines) - most) :]
    marks = [mark if len(kept) == len(lines) else _CUT, *["  "] * (len(kept) - 1)]
    return [
        Text().append(mark, "cyan").append(line, style)
        for mark, line in zip(marks, kept, strict=bool(kept))
    ]
