"""What is known of the environments of GEM and the games of TextArena, from snapshots of both."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from rlc.catalog.records import Param, Signature, optional

# Environments, without their version, that rlc has a player for (rlc.envs.gem.oracles).
ORACLES = ("game:GuessTheNumber", "game:Mastermind", "game:Sudoku", "rg:spell_backward")
_BOXED = {
    "gem.envs.math_env:MathEnv",
    "gem.envs.math_visual_env:MathVisualEnv",
    "gem.envs.reasoning_gym:ReasoningGymEnv",
}
_AT_LEAST_ONE = {"max_turns", "size", "max_tests", "max_workers"}


@cache
def snapshot(library: str) -> Any:
    """What ``python -m tools.gem_snapshot`` wrote of ``gem``, or ``python -m
    tools.textarena_snapshot`` of ``textarena``."""
    path = os.path.join(os.path.dirname(__file__), "data", f"{library}.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def gem_ids() -> tuple[str, ...]:
    return tuple(snapshot("gem")["environments"])


def gem_facts(env_id: str) -> dict[str, Any]:
    """``class, args, chars`` of an environment with its class's ``params, multi_turn, needs``.

    ``boxed``: its answers are read from a box that its questions do not ask for.
    """
    facts = snapshot("gem")
    environment = facts["environments"][env_id]
    boxed = environment["class"] in _BOXED
    return {**facts["classes"][environment["class"]], **environment, "boxed": boxed}


def is_broken(env_id: str) -> bool:
    """Whether the library itself cannot make it: nothing is missing, and yet it fails."""
    facts = gem_facts(env_id)
    return facts["chars"] is None and not facts["needs"]


def library() -> str:
    """``gem-llm 0.1.0``, the version that the snapshot was taken of."""
    stored = snapshot("gem")
    return f"{stored['library']} {stored['version']}"


def gem_signature(env_id: str) -> Signature:
    """The keyword arguments that an environment honours, with its registered values as defaults."""
    facts = gem_facts(env_id)
    params = tuple(
        Param(
            name,
            spec["type"],
            f"argument of {facts['class'].split(':')[1]}",
            facts["args"].get(name, spec["default"]),
            low=1 if name in _AT_LEAST_ONE else None,
            optional=spec.get("optional", False),
            default_of="the environment",
        )
        for name, spec in facts["params"].items()
    )
    reason = None
    if env_id.startswith("rg:"):
        reason = "GEM hands reasoning-gym no other argument: it would be dropped without a word"
    return Signature(params, reason)


_MOST_PLAYERS = 15


def textarena_ids() -> tuple[str, ...]:
    return tuple(snapshot("textarena")["games"])


def textarena_facts(env_id: str) -> dict[str, Any]:
    """The numbers of ``players`` of a game, None if unknown; what it ``needs`` to be made, and the
    characters of its first ``prompt``. ``broken_in``: the library that cannot make it."""
    stored = snapshot("textarena")
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
