"""``rlc show``: reading what happened in an episode."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import plan, write_lines, write_run
from rich.console import Console

from rlc.cli.main import main
from rlc.cli.transcripts import system_messages, transcript
from rlc.report.episodes import EpisodeFilter, ShownEpisode, representatives


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("show") / "run"
    write_run(path)
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def records(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown(capsys, *arguments, "--json").splitlines()]


def test_by_default_the_best_median_and_worst_of_the_last_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(capsys, str(folder))
    headings = [line for line in out.splitlines() if "main step" in line]
    assert [line.split("  ")[:2] for line in headings] == [
        ["guess", "best"],
        ["guess", "median"],
        ["guess", "worst"],
        ["spell", "best"],
        ["spell", "median"],
        ["spell", "worst"],
        ["spell", "failed"],
    ]
    assert all("main step 8" in line for line in headings)
    assert "What is 8 & <b>1</b>?" in out
    assert "I say 3." in out
    assert "advantage ▲ +2.000" in out
    assert "✕ EnvError: the game went away" in out


def test_filters_choose_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = records(capsys, str(folder), "--step", "7", "--env", "guess", "--task", "7")
    assert [(r["step"], r["env"], r["member"]) for r in found] == [
        (7, "guess", member) for member in range(4)
    ]
    assert len(records(capsys, str(folder), "--limit", "3")) == 3
    assert [r["member"] for r in records(capsys, str(folder), "--member", "2")] == [2, 2]
    failed = records(capsys, str(folder), "--failed")
    assert [(r["step"], r["error"] is not None) for r in failed] == [(7, True), (8, True)]


def test_what_is_not_there_is_said_with_what_is(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = (
        (["--stage", "nope"], "known: main, heldout"),
        (["--env", "nope"], "known: guess, spell"),
        (["--step", "99"], "main has done the steps 1 to 8"),
    )
    for arguments, hint in cases:
        assert main(["show", str(folder), *arguments]) == 1
        assert hint in capsys.readouterr().err
    assert main(["show", str(tmp_path)]) == 1
    assert "is not a run folder" in capsys.readouterr().err
    write_run(tmp_path / "fresh", done=0)
    write_lines(tmp_path / "fresh" / "metrics.jsonl", [])
    assert main(["show", str(tmp_path / "fresh")]) == 1
    assert "no step with episodes is done yet" in capsys.readouterr().err


def episode(**changes: Any) -> dict[str, Any]:
    turn: dict[str, Any] = {
        "observation": "[red]2 + 2?[/red]",
        "action": "",
        "reward": None,
        "metrics": {},
        "prompt_tokens": 9,
        "tokens": 1,
        "stop_reason": "stop",
        "calls": [["1", "python", "print(4)"]],
    }
    known = {"stage": "main", "step": 1, "env": "a", "task": 0, "member": 0, "role": "judge"}
    known |= {"reward": 0.0, "ended": "done", "error": None, "staleness": 2}
    return known | {"advantages": [-0.5], "turns": [turn]} | changes


def text_of(record: dict[str, Any], color: bool) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=color, record=True)
    for line in transcript(ShownEpisode(record)):
        console.print(line, soft_wrap=True)
    return console.export_text(styles=color)


def test_what_the_chat_says_first_is_shown_at_the_first_turn() -> None:
    record = episode()
    record["turns"] *= 2
    lines = [line.plain for line in transcript(ShownEpisode(record), "Be brief.")]
    assert lines.count("system:\n  Be brief.") == 1
    assert lines.index("system:\n  Be brief.") < lines.index("── turn 2 of 2")
    written = plan(steps=4)
    assert system_messages(written) == {"guess": "", "spell": ""}


def test_advantages_are_coloured_and_readable_without_colour() -> None:
    assert "\x1b[31m▼ -0.500" in text_of(episode(), color=True)
    assert "\x1b[32m▲ +0.500" in text_of(episode(advantages=[0.5]), color=True)
    plain = text_of(episode(), color=False)
    for text in ("▼ -0.500", "member 0, judge", "2 steps stale", "no reward", "(nothing)"):
        assert text in plain
    assert "call of python:\n  print(4)" in plain
    assert "[red]2 + 2?[/red]" in plain  # what an environment says is no markup


def test_equal_rewards_leave_one_and_causes_come_once() -> None:
    alike = [episode(member=member, advantages=[0.0]) for member in range(4)]
    assert [chosen.why for chosen in representatives(alike)] == ["median"]
    broken = [episode(error="EnvError: x", turns=[]) for _ in range(3)]
    assert [chosen.why for chosen in representatives(alike + broken)] == ["median", "failed"]


def test_of_equal_rewards_the_better_in_its_group_is_the_best() -> None:
    easy = episode(member=0, reward=1.0, advantages=[0.0])
    hard = episode(member=1, reward=1.0, advantages=[0.8])
    bad = episode(member=2, reward=0.0)
    assert [c.record["member"] for c in representatives([easy, hard, bad])] == [1, 0, 2]


def test_the_row_of_data_behind_an_episode_is_shown() -> None:
    about = {"place": "rows.jsonl:12", "id": "q-7", "fields": {"answer": 42, "level": "hard"}}
    text = text_of(episode(about=about), color=False)
    assert "id q-7 · rows.jsonl:12 · answer 42 · level hard" in text


def test_episodes_are_found_by_the_id_of_their_row() -> None:
    wanted = EpisodeFilter(row="7")
    assert wanted.has_row(episode(about={"place": "rows.jsonl:1", "id": 7, "fields": {}}))
    assert not wanted.has_row(episode(about={"place": "rows.jsonl:7", "fields": {}}))
    assert not wanted.has_row(episode())


def test_a_reward_that_its_shape_left_as_it_was_stands_there_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "rollouts.jsonl"
    played = [json.loads(line) for line in path.read_text().splitlines()]
    for change, shown in ((0.0, False), (0.25, True)):
        shaped = [{**one, "raw_reward": one["reward"] + change} for one in played]
        write_lines(path, shaped)
        assert main(["show", str(tmp_path / "run")]) == 0
        assert ("before it was shaped" in capsys.readouterr().out) is shown
