"""Writes what the catalogue knows of TextArena's games from the installed library.

    python -m tools.textarena_snapshot

Each game is begun with every number of players, which is how the library says what it takes. One
that cannot be made although nothing is missing has no `players`; one that downloads word lists,
asks a model of its own or takes long to begin `needs` that, and its number of players is not known.
The mean and the longest of the texts that it shows are measured by playing it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlc.catalog.facts import TINY
from rlc.envs.games import TextArenaGame
from tools.gem_snapshot import lengths, tiny_tokens

PATH = Path(__file__).parents[1] / "rlc" / "catalog" / "data" / "textarena.json"
MOST_PLAYERS = 15
_SEEDS = (0, 1, 2)
_SECONDS = 10  # that a game may take to begin, or to be tried
_MOVES = 200  # of a match that is tried
_SHOWN = 20  # of a match whose texts are measured
# What its errors say of what a game lacks here.
_NEEDS = {"nltk_data": "nltk", "OPENROUTER_API_KEY": "openrouter", "TimeoutError": "patience"}


def main() -> None:
    PATH.write_text(render(snapshot()), encoding="utf-8")
    print(f"wrote {PATH}")


def render(facts: dict[str, Any]) -> str:
    """One line a game."""
    head = json.dumps({key: value for key, value in facts.items() if key != "games"})
    games = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in facts["games"].items())
    return f'{head[:-1]}, "games": {{\n{games}\n}}}}\n'


def snapshot() -> dict[str, Any]:
    return {
        "library": "textarena",
        "version": importlib.metadata.version("textarena"),
        "games": {env_id: probe(env_id) for env_id in ids()},
    }


def ids() -> list[str]:
    """The games, without the variants that only change how a prompt is written."""
    from textarena.envs.registration import ENV_REGISTRY

    return sorted(name for name in ENV_REGISTRY if not name.endswith(("-raw", "-train")))


def probe(env_id: str) -> dict[str, Any]:
    """The numbers of players of a game, what it lacks here, the characters of its first prompt, and
    whether it lists the moves that are legal."""
    players, errors = list[int](), list[str]()
    for count in range(1, MOST_PLAYERS + 1):
        try:
            with _quietly():
                TextArenaGame(env_id, count, seed=0)
            players.append(count)
        except Exception as error:  # the library raises anything
            errors.append(f"{error} {error.__cause__}")
    if not players:
        needs = next((need for text, need in _NEEDS.items() if text in errors[0]), None)
        unknown = {"chars": None, TINY: None, "lists_moves": False}
        return {"players": None, "needs": [needs] if needs else [], **unknown}
    fewest = players[0]
    listed = players[-1] > 1 and _lists_moves(env_id, max(2, fewest))
    shown = _shown(env_id, fewest)
    known = {"chars": lengths(shown, len), TINY: lengths(shown, tiny_tokens), "lists_moves": listed}
    return {"players": players, "needs": [], **known}


def _shown(env_id: str, players: int) -> dict[str, list[str]]:
    """What seats see at first, and later: of games with moves that are listed, or just a number."""
    first, later, draws = list[str](), list[str](), random.Random(0)
    with contextlib.suppress(Exception), _quietly():  # the library raises anything
        for seed in _SEEDS:
            game, begun = TextArenaGame(env_id, players, seed=seed), set[int]()
            for _ in range(_SHOWN):
                if (seat := game.seat) is None:
                    break
                (later if seat in begun else first).append(game.observe(seat))
                begun.add(seat)
                game.step(seat, draws.choice(game._listed or [f"[{n}]" for n in range(9)]))
    return {"prompt": first} | ({"observation": later} if later else {})


def _lists_moves(env_id: str, players: int) -> bool:
    """Whether each prompt of some matches lists moves, and the game allows all that are tried."""
    try:
        with _quietly():
            return all(_plays_by_its_list(TextArenaGame(env_id, players, s)) for s in _SEEDS)
    except Exception:  # the library raises anything
        return False


def _plays_by_its_list(game: TextArenaGame) -> bool:
    refused, draws = list[str](), random.Random(0)
    refuse = game._state.set_invalid_move

    def noted(*args: Any, **more: Any) -> Any:
        refused.append(str(args))
        return refuse(*args, **more)

    game._state.set_invalid_move = noted
    for _ in range(_MOVES):
        if refused or game.seat is None:
            break
        game.observe(game.seat)
        if not game._listed:
            return False
        game.step(game.seat, draws.choice(game._listed))
    return not refused


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what games print, and not for ever."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    main()
