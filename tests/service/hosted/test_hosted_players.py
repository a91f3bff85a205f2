"""Players that sample from a service by themselves, through the SDK, in processes of their own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from engine_tinker import EngineTinker, engine_tinker
from hosted_support import hosted_plan

from rlc.plan.parts import PlayersPlan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer
from rlc.service.hosted.connect import connect_service

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.slow]


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def played(path: Path, server: EngineTinker, players: PlayersPlan) -> tuple[list[Any], list[str]]:
    """The tokens' texts and the rewards of a run, and its notes."""
    folder, seen = RunFolder.create(path, hosted_plan(main__steps="2")), Notes()
    folder.players = players
    service = connect_service(folder.plan, path / "checkpoints", server.url)
    try:
        asyncio.run(Job(folder, service, seen).run())
    finally:
        folder.close()
    rows = [json.loads(line) for line in (path / "rollouts.jsonl").read_text().splitlines()]
    found = [(r["task"], r["member"], [t["action"] for t in r["turns"]], r["reward"]) for r in rows]
    return found, seen.notes


def test_each_player_has_a_client_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-a-key-for-tests")
    with engine_tinker(tmp_path / "here") as server:
        here, _ = played(tmp_path / "run-here", server, PlayersPlan("here"))
    with engine_tinker(tmp_path / "there") as server:
        there, notes = played(tmp_path / "run-there", server, PlayersPlan("processes", 1))
    assert there == here
    assert "1 process plays the episodes of `main`" in notes
    one, other = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("run-here", "run-there")
    )
    assert [step["tokens/sampled"] for step in one] == [step["tokens/sampled"] for step in other]
    assert [step["service/concurrency"] for step in other] == [512.0, 512.0]
