"""Plans in files, with their hash.

A saved plan is its JSON with two more keys: ``plan_hash``, and ``made_from``: recipe and options.
One that was edited is refused, and so is one whose recipe compiles to something else by now."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rlc.catalog import plan_from_file, plan_to_file
from rlc.data import changed_files
from rlc.errors import Error
from rlc.plan import OLDER, SCHEMA_VERSION, Plan, PlanFormatError, difference_lines
from rlc.records import asdict, evolve, frozen
from rlc.version import __version__

_SHOWN = 12  # differences that a message lists


@frozen
class MadeFrom:
    """The recipe and the options of a plan. Paths in ``overrides`` start at ``folder``. The file
    has it and ``recipe`` relative to its own folder."""

    recipe: str
    overrides: list[str]
    seed: int | None
    rehearse: bool
    service: str | None = None
    rlc: str = __version__
    folder: str = ""


class PlanFileError(Error):
    """A saved plan that cannot be used."""


@frozen
class SavedPlan:
    """A plan of a file. ``made_from`` is None for the plan of a run folder. ``hashed``: the file
    has the hash of its content, so it was not edited."""

    plan: Plan
    made_from: MadeFrom | None
    hashed: bool = True


def save_plan(path: str | os.PathLike[str], plan: Plan, made_from: MadeFrom) -> None:
    """Write a plan atomically. Raise PlanFileError if it cannot be written."""
    target = Path(path)
    origin = asdict(made_from)
    for name in ("recipe", "folder"):
        origin[name] = os.path.relpath(origin[name] or os.curdir, target.parent)
    data = {"made_from": origin, **plan_to_file(plan, target.parent)}
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, target)
    except (OSError, UnicodeEncodeError) as error:  # a file may have a name that is no text
        partial.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else error
        raise PlanFileError(f"cannot write {target}: {reason}") from error


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Return the plan in a file, to run. Raise PlanFileError if it was edited or is stale."""
    saved = read_plan(path)
    if not saved.hashed:
        raise PlanFileError(
            f"{path} has no hash that would show whether it was edited",
            "`rlc explain RECIPE --out plan.json` writes one; a run is gone on with by --resume",
        )
    made_from = saved.made_from
    if made_from is not None and (differences := stale_lines(saved)):
        raise PlanFileError(
            f"{path} is stale: its recipe now says something else\n" + "\n".join(differences),
            f"run the recipe itself, or write the plan anew with `{_again(made_from)}`",
        )
    if changed := list(changed_files(saved.plan.data, saved.plan.recipe)):
        raise PlanFileError(
            f"{path} is stale: " + "; ".join(changed),
            "put the file back, or write the plan anew from its recipe",
        )
    return saved.plan


def read_plan(path: str | os.PathLike[str]) -> SavedPlan:
    """Return the plan in a file, stale or not. Raise PlanFileError without one, or if edited."""
    data = _read(path)
    origin = data.pop("made_from", None)
    made_from, here = None, os.path.dirname(path)
    if origin is not None:
        from cattrs import Converter

        try:
            made_from = Converter().structure(origin, MadeFrom)
        except Exception as error:  # a converter may raise anything
            raise PlanFileError(f"{path} was edited: made_from is not what rlc writes") from error
        paths = (made_from.recipe, made_from.folder)
        recipe, folder = (p and os.path.normpath(os.path.join(here, p)) for p in paths)
        made_from = evolve(made_from, recipe=recipe, folder=folder)
    version = data.get("schema_version")
    if not isinstance(version, int):
        raise PlanFileError(f"{path} is not a plan: it has no schema_version")
    if version not in (SCHEMA_VERSION, *OLDER):
        again = "rlc explain RECIPE --out plan.json" if made_from is None else _again(made_from)
        raise PlanFileError(
            f"{path} is stale: its schema_version is {version}, and this rlc reads "
            f"{SCHEMA_VERSION}",
            f"write it anew with `{again}`",
        )
    try:
        plan, intact = plan_from_file(data, here)
    except PlanFormatError as error:
        raise PlanFileError(f"{path} is not a plan: {error}") from error
    if intact is False:
        lines = stale_lines(SavedPlan(plan, made_from))
        where = "\n".join(["; it differs from its recipe in", *lines]) if lines else ""
        raise PlanFileError(
            f"{path} was edited: its hash is no longer that of its content{where}",
            "change the recipe instead, or use --set",
        )
    return SavedPlan(plan, made_from if intact else None, bool(intact))


def stale_lines(saved: SavedPlan) -> list[str]:
    """Return how the recipe of a plan differs from it, as lines; none if there is no such file."""
    made = saved.made_from
    if made is None or not os.path.isfile(made.recipe):
        return []
    from rlc.compile.recipe import load
    from rlc.data import Reader

    settings = (made.overrides, made.seed, made.rehearse, made.service, made.folder)
    now = load(made.recipe, *settings, Reader()).plan
    if now is None:
        return [f"  {made.recipe} has errors by now: `rlc check` shows them"]
    lines = difference_lines(saved.plan, now)
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return lines[:_SHOWN] + more


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PlanFileError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise PlanFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise PlanFileError(f"{path} is not a plan: a plan is a JSON object")
    return data


def _again(made_from: MadeFrom) -> str:
    import shlex

    words = ["rlc", "explain", made_from.recipe]
    words += [word for override in made_from.overrides for word in ("--set", override)]
    words += [] if made_from.seed is None else ["--seed", str(made_from.seed)]
    words += ["--rehearse"] if made_from.rehearse else []
    words += [] if made_from.service is None else ["--service", made_from.service]
    return shlex.join([*words, "--out", "plan.json"])
