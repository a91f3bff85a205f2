"""What the paths on a command line stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rlc.errors import Error


class NoRecipeError(Error):
    """A folder on the command line holds no recipe."""

    exit_status = 2


def recipe_files(paths: Iterable[str]) -> list[str]:
    """The files themselves, and for a folder every recipe in it and its subfolders, in order.

    A file named twice comes once. Raises NoRecipeError for a folder without a recipe.
    """
    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        inside = list(_in_folder(path))
        if not inside:
            raise NoRecipeError(f"no recipe (*.rl) in {path}")
        files += inside
    return list(dict.fromkeys(files))


def _in_folder(path: str) -> Iterable[str]:
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".rl"))
