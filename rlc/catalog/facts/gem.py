"""What is known of the environments of GEM, from a snapshot of the library."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from rlc.catalog.records import Param, Signature

_PATH = os.path.join(os.path.dirname(__file__), "data", "gem.json")
# Environments, without their version, that rlc has a player for (rlc.envs.gem.oracles).
ORACLES = ("game:GuessTheNumber", "game:Mastermind", "game:Sudoku", "rg:spell_backward")
_BOXED = {
    "gem.envs.math_env:MathEnv",
    "gem.envs.math_visual_env:MathVisualEnv",
    "gem.envs.reasoning_gym:ReasoningGymEnv",
}
_AT_LEAST_ONE = {"max_turns", "size", "max_tests", "max_workers"}


@cache
def gem_snapshot() -> Any:
    """Written by ``python -m tools.gem_snapshot``."""
    with open(_PATH, encoding="utf-8") as file:
        return json.load(file)


def gem_ids() -> tuple[str, ...]:
    return tuple(gem_snapshot()["environments"])


def gem_facts(env_id: str) -> dict[str, Any]:
    """``class, args, chars`` of an environment with its class's ``params, multi_turn, needs``.

    ``boxed``: its answers are read from a box that its questions do not ask for.
    """
    facts = gem_snapshot()
    environment = facts["environments"][env_id]
    boxed = environment["class"] in _BOXED
    return {**facts["classes"][environment["class"]], **environment, "boxed": boxed}


def is_broken(env_id: str) -> bool:
    """Whether the library itself cannot make it: nothing is missing, and yet it fails."""
    facts = gem_facts(env_id)
    return facts["chars"] is None and not facts["needs"]


def library() -> str:
    """``gem-llm 0.1.0``, the version that the snapshot was taken of."""
    return f"{gem_snapshot()['library']} {gem_snapshot()['version']}"


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
