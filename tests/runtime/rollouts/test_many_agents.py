"""Many agents at once, one of which is killed: no episode is lost, or mixed up with another."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import ROOT
from processes import run_script

pytestmark = [pytest.mark.plain, pytest.mark.server]


@pytest.mark.parametrize("how", [(), ("--commands",)], ids=["threads", "processes"])
def test_each_agent_has_its_own_answers(how: tuple[str, ...], tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "agents.py")
    told = run_script([script, "--agents", "24", *how], tmp_path, {})
    assert "23 ended, 1 killed, 0 lost, 0 mixed up" in told
