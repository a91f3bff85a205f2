"""How the Python code that a recipe names is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rlc.records import field, frozen

CodeKind = Literal[
    "reward",
    "comparison",
    "factory",
    "game",
    "executor",
    "reply",
    "program",
    "player",
    "taskset",
    "advantage",
    "choice",
    "weights",
]

# What a program that has a seat in a game may ask for, each by its name.
PLAYER_SEES = ("observation", "legal_moves", "seed", "seat", "history")
# What functions of the user's own may ask for, each by its name.
SEES: Mapping[CodeKind, tuple[str, ...]] = {
    "player": PLAYER_SEES,
    "advantage": (
        "rewards_N",
        "tokens_N",
        "episode_N",
        "turns_R",
        "total_R",
        "length_R",
        "group_R",
        "env_R",
        "role_R",
        "truncated_R",
        "failed_R",
        "components",
        "step",
        "state",
    ),
    "choice": ("episodes",),
    "weights": ("played_T", "reward_T", "solved_T", "last_T", "step"),
}


@frozen
class Code:
    """Python code that a recipe names, as ``module:attr`` or ``path/file.py:attr``.

    Arguments by kind: ``reward``: the reply and the row; ``comparison``: two replies and the row;
    ``factory``: ``args`` by keyword, and those of its parameters that are ``decided`` elsewhere:
    name -> the part of the recipe, or ``offered`` if they are needed; a file has the others, if
    ``by_row``; ``game``: ``args`` and a ``seed``; ``executor``: none;
    ``reply``: its text; ``program``: the record of its run, and ``args``; ``player``,
    ``advantage``, ``choice`` of episodes and ``weights`` of tasks: ``args``, and those of
    :data:`SEES` that it names; ``taskset``: none, a module that lists a taskset of verifiers, whose
    configuration is ``args``."""

    target: str
    kind: CodeKind
    args: Mapping[str, Any] = field(factory=dict)
    decided: Mapping[str, str] = field(factory=dict)
    offered: tuple[str, ...] = ()
    by_row: bool = False


def module_of_package(package: str) -> str:
    """Return the module of a package: ``owner/my-env@0.1`` is ``my_env``; files are as they are."""
    if package.endswith(".py"):
        return package
    return package.rpartition("/")[2].partition("@")[0].replace("-", "_")
