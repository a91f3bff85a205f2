"""The recipes that paths on a command line name."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rlc.errors import Error


class NoRecipeError(Error):
    """A folder on the command line holds no recipe."""

    exit_status = 2


def recipe_files(paths: Iterable[str]) -> list[str]:
    """Return the files themselves, and every recipe in a folder and its subfolders, in order.

    A file that is named twice comes once. Raise NoRecipeError if a folder has no recipe.
    """
    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        known = len(files)
        for folder, subfolders, names in os.walk(path):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            files += [os.path.join(folder, n) for n in sorted(names) if n.endswith(".rl")]
        if len(files) == known:
            raise NoRecipeError(f"no recipe (*.rl) in {path}")
    return list(dict.fromkeys(files))
