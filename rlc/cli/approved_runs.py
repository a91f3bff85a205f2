"""Runs of saved plans that a person has approved, in processes that outlive the agent.

An approval is an empty file in the user's own folder, named by a hash of the whole plan, with the
prices by which a budget in dollars is kept. It is good for one run, and only `rlc mcp --approve`
writes it, after a question at a terminal.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from rlc.api import load_plan
from rlc.cli.commands.jobs.runs import run_rows
from rlc.compile import SavedPlan, read_plan
from rlc.errors import Error
from rlc.plan import RUNS_FOLDER, Plan, plan_hash, plan_to_dict
from rlc.pricing import plan_cost, total_cost
from rlc.runtime import is_run, new_folder, read_run


def approve(plan: Plan) -> None:
    """Let the plan be run once. Raise Error if the approval cannot be written."""
    file = _file(plan)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch()
    except OSError as error:
        raise Error(f"cannot write {file}: {error.strerror}") from error


def needs_approval(saved: SavedPlan) -> bool:
    """Return whether a plan costs money, or is no rehearsal on this machine."""
    # That of a small job may be the job itself; then only the file says that it is one.
    rehearsed = saved.made_from is not None and saved.made_from.rehearse
    rehearses = rehearsed or saved.plan.rehearses
    here = not any(stage.model.hosted for stage in saved.plan.stages)
    return not (rehearses and here) or bool(total_cost(plan_cost(saved.plan), "high"))


def require_approved(path: str) -> None:
    """Raise Error if a saved plan needs an approval and has none."""
    saved = read_plan(path)
    if needs_approval(saved) and not _file(saved.plan).exists():
        raise Error(
            f"this has not been approved: {path} ({plan_hash(saved.plan)[:12]}), or it was run "
            "already",
            f"show a person what `explain` says of it, and ask them to run "
            f"`rlc mcp --approve {path}` in a terminal; a plan made with `rehearse` needs no "
            "approval where it costs nothing",
        )


def _file(plan: Plan) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    whole = json.dumps(plan_to_dict(plan), sort_keys=True)
    return Path(state) / "rlc" / "approved" / sha256(whole.encode()).hexdigest()


_LOOKS = 0.1  # seconds between two looks at how the run stands


async def start(path: str, wait_seconds: float) -> dict[str, Any]:
    """Run a saved plan with `rlc run`; return its state at its end or after ``wait_seconds``. Raise
    Error if the plan is not approved or the run does not begin."""
    plan = load_plan(path)
    approved = True
    try:
        _file(plan).unlink()  # it is good for one run
    except FileNotFoundError:
        approved = False
    if not approved:
        require_approved(path)
    folder = new_folder(Path(RUNS_FOLDER), Path(plan.recipe).stem)
    folder.rmdir()  # `rlc run` makes it, once the plan can be run
    command = [sys.executable, "-m", "rlc", "run", path, "--run-dir", str(folder), "--quiet"]
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,  # Ctrl-C at the agent is not for the run
        )
        while process.poll() is None:
            if is_run(folder) and read_run(folder).state != "damaged":  # it has begun
                break
            await asyncio.sleep(_LOOKS)
        until = time.monotonic() + wait_seconds
        while process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(_LOOKS)
        printed.seek(0)
        output = printed.read().decode("utf-8", "replace").strip()
    if not is_run(folder):
        if approved:
            approve(plan)  # nothing was run
        raise Error(f"the run did not begin: {output.removeprefix('error: ')}")
    (row,) = run_rows(folder)
    return {
        "run": row,
        "exit_status": process.returncode,
        "output": output,
        "to_stop": f"kill -INT {process.pid} ends it after its step, with a checkpoint",
    }
