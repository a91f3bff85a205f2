"""How the Python code that a recipe names is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rlc.records import field, frozen

CodeKind = Literal[
    "reward", "comparison", "factory", "game", "executor", "reply", "program", "player"
]

# What a program that has a seat in a game may ask for, each by its name.
PLAYER_SEES = ("observation", "legal_moves", "seed", "seat", "history")


@frozen
class Code:
    """Python code that a recipe names, as ``module:attr`` or ``path/file.py:attr``.

    A ``reward`` is called with two arguments, the reply and the row; a ``comparison`` with three,
    two replies and the row; a ``factory`` with the keyword arguments ``args``, and with those of
    its parameters that the recipe has ``decided`` elsewhere: name -> the part of the recipe that
    decides it; a ``game`` with ``args`` and a ``seed``. An ``executor`` is made without arguments.
    A ``reply`` is called with the text of one; a ``program`` with the record of its run, and
    ``args``; a ``player`` with ``args``, and with those of :data:`PLAYER_SEES` that it names.
    """

    target: str
    kind: CodeKind
    args: Mapping[str, Any] = field(factory=dict)
    decided: Mapping[str, str] = field(factory=dict)


def module_of_package(package: str) -> str:
    """Return the module of a package: ``owner/my-env@0.1`` is ``my_env``; files are as they are."""
    if package.endswith(".py"):
        return package
    return package.rpartition("/")[2].partition("@")[0].replace("-", "_")
