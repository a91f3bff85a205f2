"""Tasksets of verifiers (0.4 on): modules that list theirs in ``__all__``, and check it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from rlc.data.code import explained, load_module
from rlc.data.errors import DataError

FACTORY = "load_environment"  # which a module of the older interface has
_CHECKED = 3  # tasks, of `rlc check --import`
SOLUTION, NOTHING = "gold", "noop"  # as verifiers calls them
_UNSOLVED = {
    "gold": {"invalid": "its own solution does not solve it", "timeout": "its solution is late"},
    "noop": {"invalid": "it is solved when nothing was done", "timeout": "its scoring is late"},
}


def is_taskset(target: str) -> bool:
    """Return whether a module has a taskset, and no environment of the older interface. Raise
    DataError if it cannot be imported."""
    module = load_module(target)
    return hasattr(module, "__all__") and not hasattr(module, FACTORY)


def require_valid(target: str, args: Mapping[str, Any]) -> None:
    """Raise DataError if one of the first tasks is not solved by its solution, or is by nothing, as
    the taskset's own `validate` and rewards say. ``args``: the ``env`` block of a configuration of
    verifiers. Tasks that need a container are not tried without one."""
    if faults := taskset_faults(target, args):
        said = "; ".join(fault for _, fault in faults)
        raise DataError(f"of the first tasks of `{load_module(target).__name__}`, {said}")


def taskset_faults(target: str, args: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong with the first tasks, each with what shows it: its ``SOLUTION``, or that
    ``NOTHING`` was done. See :func:`require_valid`."""
    name = load_module(target).__name__
    try:
        return list(_faults(name, args))
    except (Exception, SystemExit) as error:  # code of others may raise anything
        raise DataError(f"the taskset `{name}` cannot be checked: {explained(error)}") from error


def _faults(name: str, args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    import verifiers.v1 as vf
    from verifiers.v1.cli.validate import run_validate
    from verifiers.v1.configs.cli.validate import ValidateConfig

    here = {"type": "subprocess"}
    seats = (one for one in args.values() if isinstance(one, Mapping))
    runtime = next((seat["runtime"] for seat in seats if "runtime" in seat), here)
    taskset = {**args.get("taskset", {}), "id": name}
    with tempfile.TemporaryDirectory(prefix="rlc-tasks-") as folder:
        given = {"taskset": taskset, "runtime": runtime, "rich": False, "output_dir": folder}
        config = ValidateConfig(**given, select={"limit": _CHECKED})
        tasks = vf.load_taskset(config.taskset).select(config.select)
        contained = any(type(task).NEEDS_CONTAINER or task.data.image for task in tasks)
        if contained and runtime == here:
            return
        for row in asyncio.run(run_validate(config)):
            for part in (SOLUTION, NOTHING):
                found = row[part]
                if found["reason"] not in ("valid", "unchecked"):
                    what = _UNSOLVED[part].get(found["reason"]) or found["error"]
                    yield part, f"task {row['index']}: {what}"
