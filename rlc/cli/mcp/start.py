"""A run in a process of its own, which goes on when the agent or its server ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rlc.api import load_plan
from rlc.cli.commands.jobs.runs import run_rows
from rlc.cli.mcp.approvals import approve, needs_approval, use_approval
from rlc.compile import read_plan
from rlc.errors import Error
from rlc.plan import plan_hash
from rlc.runtime import is_run, new_folder, read_run

_RUNS = Path("runs")
_LOOKS = 0.1  # seconds between two looks at how the run stands


async def start(path: str, wait_seconds: float) -> dict[str, Any]:
    """Run a saved plan with `rlc run`, and return how it stands when it has ended or
    ``wait_seconds`` are over, whatever is first.

    Raise Error if the plan is not approved or the run does not begin.
    """
    plan = load_plan(path)
    approved = use_approval(plan)
    if not approved and needs_approval(read_plan(path)):
        raise Error(
            f"nobody has approved {path} ({plan_hash(plan)[:12]}), or it was run already",
            f"show a person what `explain` says of it, and ask them to run "
            f"`rlc mcp --approve {path}` in a terminal; a plan made with `rehearse` needs no "
            "approval where it costs nothing",
        )
    folder = new_folder(_RUNS, Path(plan.recipe).stem)
    folder.rmdir()  # `rlc run` makes it, once the plan can be run
    command = [sys.executable, "-m", "rlc", "run", path, "--run-dir", str(folder), "--quiet"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C at the agent is not for the run
        )
        while process.poll() is None and not _has_begun(folder):
            await asyncio.sleep(_LOOKS)
        until = time.monotonic() + wait_seconds
        while process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(_LOOKS)
        said.seek(0)
        output = said.read().decode("utf-8", "replace").strip()
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


def _has_begun(folder: Path) -> bool:
    """Return whether a run has written how it stands."""
    return is_run(folder) and read_run(folder).state != "damaged"
