"""Many agents at once, one of which is killed: no episode is lost, or mixed up with another."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.server]


@pytest.mark.parametrize("how", [(), ("--commands",)], ids=["threads", "processes"])
def test_each_agent_has_its_own_answers(how: tuple[str, ...]) -> None:
    script = str(ROOT / "benchmarks" / "agents.py")
    command = [sys.executable, script, "--agents", "24", *how]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "23 ended, 1 killed, 0 lost, 0 mixed up" in done.stdout
