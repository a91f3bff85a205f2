"""What is known of the games of TextArena, from a snapshot of the library."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from rlc.catalog.records import Param, Signature, optional

_PATH = os.path.join(os.path.dirname(__file__), "data", "textarena.json")
_MOST_PLAYERS = 15


@cache
def textarena_snapshot() -> Any:
    """Written by ``python -m tools.textarena_snapshot``."""
    with open(_PATH, encoding="utf-8") as file:
        return json.load(file)


def textarena_ids() -> tuple[str, ...]:
    return tuple(textarena_snapshot()["games"])


def textarena_facts(env_id: str) -> dict[str, Any]:
    """The numbers of ``players`` of a game, None if unknown; what it ``needs`` to be made, and the
    characters of its first ``prompt``. ``broken_in``: the library that cannot make it."""
    stored = textarena_snapshot()
    game = stored["games"][env_id]
    broken = game["players"] is None and not game["needs"]
    return {**game, "broken_in": f"{stored['library']} {stored['version']}" if broken else None}


def textarena_signature(env_id: str) -> Signature:
    """The number of players, as the game takes it, and what a move that is not allowed costs."""
    players = textarena_facts(env_id)["players"] or range(1, _MOST_PLAYERS + 1)
    fewest = min(players) if len(players) < _MOST_PLAYERS else 2
    return Signature(
        (
            Param(
                "players",
                "int",
                "seats of the game",
                fewest,
                low=min(players),
                high=max(players),
                default_of="the game",
            ),
            optional(
                "illegal",
                "float",
                "reward of a move that is not allowed, which ends the match; none: the first may "
                "be made again, and the next loses",
            ),
        ),
        "TextArena's variants of a game have ids of their own",
    )
