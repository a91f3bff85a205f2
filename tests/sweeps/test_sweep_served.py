"""A sweep on a server, several trials at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from http_testing import running_server
from sweep_support import write

import rlc

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.slow]

SWEEP = "sweep s { of = main  over = { rate = [1e-4, 1e-3, 1e-2, 2e-2] } }\n"


def test_trials_run_side_by_side_on_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    recipe = write(tmp_path, SWEEP)
    with running_server(tmp_path / "served") as url:
        summary = rlc.sweep(
            recipe, run_dir=tmp_path / "sweep", base_url=url, jobs=3, service="tinker"
        )
    assert [(record.state, record.cause) for record in summary.trials] == [("finished", "")] * 4
    assert summary.best is not None
    (shared,) = (tmp_path / "sweep" / "shared").iterdir()
    # The warm start went to the server once, and every trial has its journal.
    for trial in (tmp_path / "sweep" / "trials").iterdir():
        records = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
        assert [r["step"] for r in records if r["stage"] == "warmup"] == [1, 2]
        assert '"rlc_stage": "warmup"' not in (trial / "service.jsonl").read_text()
    assert '"rlc_stage": "warmup"' in (shared / "service.jsonl").read_text()
