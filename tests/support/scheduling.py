"""Which tests one worker runs: those of a file, and those that share what takes seconds to make."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

_TOGETHER = {
    "a model that is trained to call a tool": ("tests/service/inference/",),
    "a process that has imported everything, of which others are forked": (
        "tests/cli/live/test_observers.py",
        "tests/cli/test_run.py",
        "tests/cli/test_serve_command.py",
        "tests/emit/test_emitted_runs.py",
        "tests/emit/test_job_runs.py",
        "tests/runtime/journal/test_kill",
        "tests/runtime/rollouts/test_killed_agents.py",
        "tests/runtime/rollouts/test_many_agents.py",
        "tests/service/bridge/test_bridged_runs.py",
        "tests/sweeps/test_sweep_kill.py",
        "tests/sweeps/test_sweep_run.py",
    ),
}


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> Any:
        shared = (what for what, places in _TOGETHER.items() if nodeid.startswith(places))
        return next(shared, None) or super()._split_scope(nodeid)
