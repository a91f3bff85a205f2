"""Plans in files: there the recipe is named as seen from the folder of the file, so that a project
can be moved."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from rlc.catalog.environments import with_files, with_older_histories
from rlc.plan import (
    OLDER,
    Plan,
    PlanFormatError,
    content_hash,
    plan_from_dict,
    plan_hash,
    plan_to_dict,
    provenance_hash,
    rebased,
)
from rlc.records import evolve

# A key of plans in files. Those of older versions lack it: in them all paths, that of the recipe
# too, start at the working directory.
_MARK = {"paths_start_at": "recipe"}
# Plans of older versions lack the second.
_OF_PROVENANCE = "provenance_hash"


def plan_to_file(plan: Plan, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return data for a JSON file in ``folder``, with the plan's hash as ``plan_hash``."""
    recipe = os.path.relpath(plan.recipe, folder or os.curdir).replace(os.sep, "/")
    data = plan_to_dict(evolve(plan, recipe=recipe))
    hashes = {"plan_hash": content_hash(data), _OF_PROVENANCE: provenance_hash(data)}
    return {**hashes, **_MARK, **data}


def plan_from_file(data: object, folder: str | os.PathLike[str]) -> tuple[Plan, bool | None]:
    """Return the plan in a JSON file of ``folder``, and whether it has the hash of its content, so
    that it was not edited; None without a hash. Raise PlanFormatError if it is not a plan."""
    if not isinstance(data, Mapping):
        raise PlanFormatError("a plan is a JSON object")
    content = {
        key: value
        for key, value in data.items()
        if key not in (*_MARK, "plan_hash", _OF_PROVENANCE)
    }
    plan, stated = plan_from_dict(content), data.get("plan_hash")
    if (version := content.get("schema_version")) in OLDER:
        plan = with_older_histories(plan, version)
    # That of the content as an older version wrote it, or as another program would write it.
    intact = None if stated is None else stated in (content_hash(content), plan_hash(plan))
    if intact and data.get(_OF_PROVENANCE, provenance_hash(content)) != provenance_hash(content):
        intact = False
    if not data.keys() >= _MARK.keys():
        return with_files(plan, partial(rebased, folder="", recipe=plan.recipe)), intact
    return evolve(plan, recipe=recipe_in_file(data, folder)), intact


def recipe_in_file(data: Mapping[str, Any], folder: str | os.PathLike[str]) -> str:
    """Return the recipe of the plan that is in a JSON file of ``folder``."""
    marked = data.keys() >= _MARK.keys()
    return os.path.normpath(os.path.join(folder if marked else "", data["recipe"]))
