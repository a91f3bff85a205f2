"""Which saved plans a person has approved: an empty file for each, named by the plan's hash.

An approval is good for one run. It is kept in the user's own folder, not in the project, and only
`rlc mcp --approve` writes it, after a question at a terminal; no tool of the server does.
"""

from __future__ import annotations

import os
from pathlib import Path

from rlc.compile import SavedPlan
from rlc.errors import Error
from rlc.plan import LOCAL, Plan, plan_hash
from rlc.pricing import plan_cost, total_cost


def approve(plan: Plan) -> None:
    """Let the plan be run once. Raise Error if that cannot be written down."""
    file = _file(plan)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch()
    except OSError as error:
        raise Error(f"cannot write {file}: {error.strerror}") from error


def use_approval(plan: Plan) -> bool:
    """Take away the plan's approval; return whether there was one."""
    try:
        _file(plan).unlink()
    except FileNotFoundError:
        return False
    return True


def needs_approval(saved: SavedPlan) -> bool:
    """Return whether a person has to approve the plan: all but rehearsals on this machine that
    cost nothing."""
    # That of a small job may be the job itself; then only the file says that it is one.
    rehearsed = saved.made_from is not None and saved.made_from.rehearse
    rehearses = rehearsed or saved.plan.rehearses
    here = all(stage.model.service == LOCAL for stage in saved.plan.stages)
    return not (rehearses and here) or bool(total_cost(plan_cost(saved.plan), "high"))


def _file(plan: Plan) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rlc" / "approved" / plan_hash(plan)
