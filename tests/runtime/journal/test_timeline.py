"""The timeline of a run: what ran when, and nothing of steps that were taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_support import metrics, run, run_new, tiny, train

from rlc.runtime.graph import NodeContext
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import Timeline


def spans(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "timeline.jsonl").read_text().splitlines()]


@pytest.mark.plain
def test_each_node_of_each_step_has_its_spans(tmp_path: Path) -> None:
    plan = tiny(train(steps="2", overlap="streamed(2)", batch="groups(2, group_size = 2)"))
    run_new(tmp_path / "run", plan)
    found = spans(tmp_path / "run")
    kinds = {node.kind for node in plan.graph.nodes if node.stage == "main"}
    for record in metrics(tmp_path / "run"):
        mine = [span for span in found if span["step"] == record["step"]]
        assert {span["kind"] for span in mine} == kinds
        parts = sorted(span["part"] for span in mine if span["kind"] == "rollouts")
        assert parts == [0, 1]
        for kind in ("rollouts", "optim_step"):
            seconds = sum(s["end"] - s["start"] for s in mine if s["kind"] == kind)
            assert abs(seconds - record[f"time/{kind}"]) < 1e-4
        assert all(span["start"] <= span["end"] for span in mine)


@pytest.mark.plain
def test_what_is_run_again_is_in_it_once(tmp_path: Path) -> None:
    """As after a kill: of the steps after the last checkpoint only the new spans stay."""
    run_new(
        tmp_path / "run",
        tiny(train(steps="3", save="every(2)", batch="groups(2, group_size = 2)")),
        stop_after=("main", 3),
    )
    folder = RunFolder.resume(tmp_path / "run")
    folder.journal.drop_checkpoint("main", 3)
    before = spans(tmp_path / "run")
    run(folder)
    after = spans(tmp_path / "run")
    assert [s for s in after if s["step"] < 3] == [s for s in before if s["step"] < 3]
    assert len(after) == len(before)
    last = [span["start"] for span in before if span["step"] == 3]
    assert min(span["start"] for span in after if span["step"] == 3) > max(last)


def test_a_step_is_handed_out_once() -> None:
    timeline = Timeline("main")
    timeline.add("rollouts", NodeContext(1, 0, 2), 10.0, 11.0)
    timeline.add("rollouts", NodeContext(2, 1, 2), 11.0, 12.5)
    assert timeline.take(2) == [
        {"stage": "main", "step": 2, "part": 1, "kind": "rollouts", "start": 11.0, "end": 12.5}
    ]
    assert timeline.take(2) == []
    assert len(timeline.take(1)) == 1
