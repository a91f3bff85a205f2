"""The trackers' own libraries, where they are installed: what is sent can be read again."""

from __future__ import annotations

import importlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from run_support import tiny, train

from rlc.plan.parts import TrackPlan
from rlc.plan.stages import Training
from rlc.runtime.trackers import MetricsLog

STEPS = [
    {"stage": "main", "step": n, "reward/mean": 0.25 * n, "turns/mean": 1.0} for n in (1, 2, 3)
]


def stage(tracker: str, **args: Any) -> Training:
    (plan,) = tiny(train()).stages
    assert isinstance(plan, Training)
    return evolve(plan, track=(TrackPlan(tracker, args),))


def tracked(folder: Path, plan: Training, steps: list[dict[str, Any]]) -> None:
    log = MetricsLog(folder)
    log.open(plan)
    for step in steps:
        log.write(step)
    log.close()


@pytest.mark.plain
def test_event_files_can_be_read_by_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    proto = importlib.import_module("tensorboardX.proto.event_pb2")
    tracked(tmp_path, stage("tensorboard"), STEPS[:2])
    tracked(tmp_path, stage("tensorboard"), STEPS[2:])  # a resumed run adds a file
    seen = {}
    for path in sorted((tmp_path / "tensorboard" / "main").iterdir()):
        for record in records(path.read_bytes()):
            event = proto.Event.FromString(record)
            for value in event.summary.value:
                seen[value.tag, event.step] = value.simple_value
    assert {step: value for (tag, step), value in seen.items() if tag == "reward/mean"} == {
        1: 0.25,
        2: 0.5,
        3: 0.75,
    }


def records(data: bytes) -> list[bytes]:
    """The records of an event file: length (8 bytes), checksum (4), content, checksum (4)."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        found.append(data[at + 12 : at + 12 + size])
        at += size + 16
    return found


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_has_the_metrics_and_one_run_for_a_resumed_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    plan = stage("wandb", project="games", run=None)
    tracked(tmp_path, plan, STEPS[:2])
    tracked(tmp_path, plan, STEPS[2:])
    written = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len({path.stem for path in written}) == 1  # one id
    history = [row for path in written for row in wandb_history(path)]
    assert [row["reward/mean"] for row in history] == [0.25, 0.5, 0.75]
    assert [row["_step"] for row in history] == [1, 2, 3]


def test_trackio_has_the_metrics_and_one_run_for_a_resumed_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed")
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
    plan = stage("trackio", project="games", run=None)
    tracked(tmp_path, plan, STEPS[:2])
    tracked(tmp_path, plan, STEPS[2:])
    with closing(sqlite3.connect(tmp_path / "trackio" / "games.db")) as stored:
        rows = stored.execute("SELECT run_id, step, metrics FROM metrics ORDER BY id").fetchall()
    assert len({run for run, _, _ in rows}) == 1
    assert [step for _, step, _ in rows] == [1, 2, 3]
    assert [json.loads(metrics)["reward/mean"] for _, _, metrics in rows] == [0.25, 0.5, 0.75]


def wandb_history(path: Path) -> list[dict[str, Any]]:
    proto = importlib.import_module("wandb.proto.wandb_internal_pb2")
    found = map(proto.Record.FromString, log_records(path.read_bytes()))
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in rows}
        for rows in (record.history.item for record in found)
        if rows
    ]


def log_records(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log after a header of 7 bytes: in blocks of 32 KB, each piece with
    a checksum (4 bytes), its length (2) and a type (1): all of a record, its start, middle, end."""
    at, record = 7, b""
    while at < len(data):
        if 32_768 - at % 32_768 < 7:
            at += 32_768 - at % 32_768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record = record * (kind in (3, 4)) + data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield record
