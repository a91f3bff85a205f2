"""Paths of files in a plan: they start at the folder of its recipe.

A recipe names files as seen from its own folder, and so does the plan, with ``/`` between the
parts. What names a file elsewhere, an imported file or the command line, is rebased when it is
compiled. Absolute paths and those that start with ``~`` stay as they are.
"""

from __future__ import annotations

import os
import re

# What stands where a file could: a data set of the Hugging Face hub, hub:org/name, with a revision
# (@…) and a configuration (/…) behind it if it has several.
HUB_DATASET = r"hub:([\w.-]+/[\w.-]+)(?:@([\w.-]+))?(?:/([^/@]+))?"

# Weights of an earlier run: its folder, with a stage of it (@main) and a step of that (:20), "best"
# or "last" behind it. In a plan it always has both.
RUN_WEIGHTS = r"(?!\w+://)(.+?)(?:@([A-Za-z_]\w*)(?::(\d+|best|last))?)?"

# Where runs are, unless another folder is named.
RUNS_FOLDER = "runs"

# What is in the folder of a run; the checkpoints are those of the embedded engine.
PLAN_FILE, JOURNAL_FILE, CHECKPOINTS_FOLDER = "plan.json", "journal.sqlite", "checkpoints"

# What says what is in a folder that `save_to_disk` of the package datasets wrote: of a data set,
# and of several, each a split. They stand for the Arrow files beside them.
SAVED_SET, SAVED_SPLITS = SAVED = ("state.json", "dataset_dict.json")

# What to do about a file that is not there.
WHERE_PATHS_START = "a path starts at the folder of the file that names it"


def located(path: str, recipe: str) -> str:
    """Return where a path of a plan is, as this process opens it; ``recipe`` is the plan's."""
    return os.path.normpath(os.path.join(os.path.dirname(recipe), os.path.expanduser(path)))


def is_saved_set(path: str) -> bool:
    """Return whether a file stands for the Arrow files of a folder."""
    return os.path.basename(path) in SAVED


def is_there(path: str) -> bool:
    """Return whether there is a file or folder, or one that matches a pattern."""
    if os.path.exists(path):
        return True
    import glob  # few recipes have patterns

    return bool(glob.glob(path))


def rebased(path: str, folder: str, recipe: str) -> str:
    """Return a path from ``folder`` as one from the folder of ``recipe``; as is if it is that."""
    home = os.path.dirname(recipe)
    whole = os.path.expanduser(path)
    if os.path.isabs(whole) or os.path.abspath(folder) == os.path.abspath(home):
        return path
    moved = os.path.relpath(os.path.join(folder, path), home or os.curdir).replace(os.sep, "/")
    # `./models/x` is a folder, `models/x` could be a name.
    return f"./{moved}" if path.startswith(".") and not moved.startswith(".") else moved


def file_part(path: str) -> str:
    """Return the file of ``rewards.py:reward``, the folder of ``runs/x@main:20``; else the path."""
    file, _, _ = path.rpartition(":")
    weights = re.fullmatch(RUN_WEIGHTS, path)
    if weights is not None and weights[3] is not None:
        return weights[1]
    return file if file.endswith(".py") else path


def hub_dataset(name: str) -> tuple[str, str | None, str | None] | None:
    """Return a data set of the hub, its revision and configuration; None for any other name."""
    found = re.fullmatch(HUB_DATASET, name)
    return None if found is None else (found[1], found[2], found[3])
