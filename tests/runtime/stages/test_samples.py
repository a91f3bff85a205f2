"""Episodes that a stage learns from: played once, and kept however the run ends."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from run_support import block, comparable, run, run_new, tiny, undisturbed

from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.stages import samples

pytestmark = pytest.mark.engine

OWN = tiny(
    block(
        "sft",
        "warmup",
        {
            "model": "policy",
            "data": "demonstrations(guess, n = 6, policy = model, min_reward = 1.0)",
            "batch": "3",
            "steps": "2",
            "optimizer": "adam(1e-3)",
        },
    )
)


def examples(path: Path) -> list[dict[str, Any]]:
    """The examples, without logprobs: nothing reads them, and their last bits depend on what the
    engine still has in its cache."""
    lines = (path / "examples-warmup.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for sequence in (one for record in records for one in record["sequences"]):
        del sequence["logprobs"]
    return records


def test_what_was_played_before_a_crash_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "WAVE", 3)
    whole = run_new(tmp_path / "whole", OWN)
    played, play = Counter[int](), Player.play

    async def counted(self: Player, task: Task) -> Any:
        played[task.number] += 1
        if task.number == 5 and played[5] == 1:  # in the second wave
            raise RuntimeError("the machine is gone")
        return await play(self, task)

    monkeypatch.setattr(Player, "play", counted)
    with pytest.raises(RuntimeError, match="gone"):
        run_new(tmp_path / "parts", OWN)
    file = tmp_path / "parts" / "episodes-warmup.jsonl"
    with file.open("a") as cut_off:
        cut_off.write('{"task": 3, "epis')
    run(RunFolder.resume(tmp_path / "parts"))
    assert [played[number] for number in range(6)] == [1, 1, 1, 2, 2, 2]
    assert examples(tmp_path / "parts") == examples(tmp_path / "whole")
    assert comparable(tmp_path / "parts") == comparable(tmp_path / "whole")
    assert whole.state == "finished"


def test_all_that_was_played_is_kept_with_what_it_earned() -> None:
    path = undisturbed(OWN)
    lines = (path / "episodes-warmup.jsonl").read_text().splitlines()
    episodes = [one for line in lines for one in json.loads(line)["episodes"]]
    assert len(episodes) >= len(examples(path)) == 6
    good = [one for one in episodes if one["reward"] >= 1.0][:6]
    assert [one["actions"] for one in good] == [one["actions"] for one in examples(path)]
