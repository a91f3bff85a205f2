"""``rlc show`` of a match: one conversation of all seats."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_support import compiled, rollouts, run_new, train

from rlc.cli.main import main
from rlc.report.run_page import run_html

pytestmark = pytest.mark.engine

GAME = """
class Count:
    def __init__(self, seed):
        self.seat, self.said, self.rewards = 0, 0, (0.0, 0.0)

    def observe(self, seat):
        return f"{self.said} of 3 are said"

    def step(self, seat, action):
        self.said += 1
        self.seat = 1 - seat if self.said < 3 else None
        self.rewards = (1.0, -1.0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("match")
    (where / "count.py").write_text(GAME, encoding="utf-8")
    plan = compiled(
        'model policy { base = "tiny" lora_rank = 4 }\n'
        f'env count = python_game("{where}/count.py:Count")\n'
        + train(
            env="count |> play(against = self)",
            batch="groups(1, group_size = 2)",
            sampling="sample(max_tokens = 4)",
            steps="1",
        )
        + "eval wins { model = main env = count |> play(against = policy) tasks = 1 samples = 2 "
        "metrics = [win_rate()] }\n"
    )
    run_new(where / "run", plan)
    return where / "run"


def moves(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["show", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith("──") or line.endswith(" are said")]


def test_the_moves_of_both_seats_come_in_turn(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moves(capsys, str(folder), "--stage", "main", "--task", "0", "--member", "1") == [
        "── move 1 of 3, first",
        "  0 of 3 are said",
        "── move 2 of 3, second",
        "  1 of 3 are said",
        "── move 3 of 3, first",
        "  2 of 3 are said",
    ]


def test_what_the_opponent_said_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = moves(capsys, str(folder), "--stage", "wins")
    assert [line for line in said if line.startswith("──")] == [
        "── move 1 of 3, first",
        "── move 2 of 3, second (policy)",
        "── move 3 of 3, first",
        "── move 1 of 3, first (policy)",
        "── move 2 of 3, second",
        "── move 3 of 3, first (policy)",
    ]
    (text,) = {turn["others"][-1][2] for r in rollouts(folder, "wins")[1:] for turn in r["turns"]}
    assert main(["show", str(folder), "--stage", "wins"]) == 0
    assert text.splitlines()[0].strip() in capsys.readouterr().out


def test_a_match_is_shown_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "--stage", "main", "--limit", "4"]) == 0
    assert capsys.readouterr().out.count("task 0, match") == 2  # of four episodes


def test_the_report_says_how_matches_ended_by_seat_and_opponent(folder: Path) -> None:
    page = run_html(folder)
    for title in ("first against itself", "second against itself", "first against policy"):
        assert f"Matches of count: {title}" in page
