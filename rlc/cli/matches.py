"""Matches of a game as one conversation of all seats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlc.cli.output import Line, visible

if TYPE_CHECKING:
    from rlc.plan import Plan
    from rlc.runtime import Record


def is_match(record: Record) -> bool:
    """Whether an episode is the part of a seat in a match whose moves are numbered."""
    return any("move" in turn for turn in record["turns"])


def match_of(record: Record) -> tuple[Any, ...]:
    """What the seats of one match have in common."""
    return tuple(record[name] for name in ("stage", "step", "env", "task", "member"))


def games_of(plan: Plan) -> dict[tuple[str, str], tuple[Sequence[str], str]]:
    """Return the seats of each game, by stage and environment, and who is played against."""
    from rlc.catalog import opponent_name, seats_of

    return {
        (stage.name, env.name): (seats_of(env), opponent_name(env))
        for stage in plan.stages
        for env in stage.environments
        if env.play is not None
    }


def match_lines(parts: Sequence[Record], seats: Sequence[str], opponent: str) -> Iterator[Line]:
    """Yield the style of each line, and its parts: a heading, how each seat has ended, and the
    moves in their order. ``parts`` are the episodes of the seats that are trained, ``seats`` the
    names of all; who is not trained is the ``opponent``."""
    from rlc.plan import OUTCOMES
    from rlc.report import signed
    from rlc.report.episodes import advantage

    first = parts[0]
    where = f"  {first['stage']} step {first['step']:,}, task {first['task']:,}, match "
    yield "bold", [str(first["env"]), (f"{where}{first['member']}", "dim")]
    for part in parts:
        last = part["turns"][-1]["metrics"] if part["turns"] else {}
        ended = next((end for end in OUTCOMES if last.get(end)), part["ended"])
        earned = f"  reward {part['reward']:.3f}"
        if part["advantages"]:
            earned += f"  advantage {signed(advantage(part))}"
        yield "", [f"{part['role']}: {ended}", (earned, "dim")]
        if part["error"] is not None:
            yield "red", [f"✕ {visible(part['error'])}"]
    moves = list[tuple[int, str, str | None, str]]()  # number, who, what it saw, what it said
    for part in parts:
        for turn in part["turns"]:
            moves.append((turn["move"], part["role"], turn["observation"], turn["action"]))
            for number, seat, text in turn.get("others", ()):
                moves.append((number, f"{seats[seat]} ({opponent})", None, text))
    for number, who, seen, said in sorted(moves, key=lambda move: move[0]):
        yield "dim", [f"── move {number + 1} of {len(moves)}, {who}"]
        if seen is not None:
            yield "dim", ["sees:\n", (_indented(seen), "cyan")]
        yield "dim", ["says:\n", (_indented(said), "bold")]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in visible(text).splitlines()) or "  (nothing)"
