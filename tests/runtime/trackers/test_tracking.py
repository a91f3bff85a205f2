"""Trackers get the numbers of every step, and are always closed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import define, field
from run_support import block, metrics, run_new, tiny, train

from rlc.errors import Error
from rlc.runtime.records import RunError

pytestmark = pytest.mark.plain


@define
class Writer:
    """Stands for tensorboardX's writer of event files."""

    folder: str
    scalars: list[tuple[str, float, int]] = field(factory=list)
    closed: bool = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    made: list[Writer] = []

    def writer(folder: str, filename_suffix: str) -> Writer:
        made.append(Writer(folder))
        return made[-1]

    package: Any = ModuleType("tensorboardX")
    package.SummaryWriter = writer
    monkeypatch.setitem(sys.modules, "tensorboardX", package)
    return made


def test_a_tracker_gets_steps_and_evaluations(tmp_path: Path, writers: list[Writer]) -> None:
    evaluation = block(
        "eval", "held", {"model": "main", "env": "guess", "tasks": "2", "every": "1"}
    )
    run_new(tmp_path / "run", tiny(train(track="[tensorboard()]", steps="2"), evaluation))
    (writer,) = writers
    assert writer.folder == str(tmp_path / "run" / "tensorboard" / "main")
    rewards = [(value, step) for name, value, step in writer.scalars if name == "reward/mean"]
    assert rewards == [(r["reward/mean"], r["step"]) for r in metrics(tmp_path / "run", "main")]
    assert [step for name, _, step in writer.scalars if name == "eval/held/mean_reward"] == [1, 2]
    assert writer.closed


def test_a_tracker_is_closed_when_a_run_fails(tmp_path: Path, writers: list[Writer]) -> None:
    sft = {"model": "policy", "steps": "1", "optimizer": "adam(1e-4)", "track": "[tensorboard()]"}
    (tmp_path / "rows.jsonl").write_text("not json\n")
    data = {"data": f'rows("{tmp_path}/rows.jsonl")'}
    with pytest.raises(Error, match="the line is not JSON"):
        run_new(tmp_path / "run", tiny(block("sft", "warmup", sft | data)))
    assert [writer.closed for writer in writers] == [True]


def test_a_tracker_that_does_not_start_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(RunError, match=r"`trackio\(\)` does not start: trackio is not installed"):
        run_new(tmp_path / "run", tiny(train(track='[trackio("games")]')))
