"""Games in whole runs on the embedded engine: what is learnt, priced, kept and repeated."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from paths import RECIPES
from run_support import (
    assert_resumes,
    assert_same,
    block,
    compiled,
    metrics,
    rollouts,
    run_new,
    train,
)

from rlc.plan.records import Plan
from rlc.pricing.asked import opponent_tokens
from rlc.runtime.journal.folder import RunFolder

pytestmark = pytest.mark.plain


PULLS = """import random
def pull(observation, seed, history, word):
    return random.Random(seed).choice(["", word * (1 + len(history))])
"""
PROGRAM = 'scripted("players.py:pull", args = { word = "ab" })'


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(RECIPES / "tug_of_war.py", tmp_path)
    (tmp_path / "players.py").write_text(PULLS, encoding="utf-8")


def game(against: str, *more: str, **fields: str) -> Plan:
    """A small job that plays tugs of war."""
    text = (
        'model policy { base = "tiny" lora_rank = 4 }\n'
        'env tug = python_game("tug_of_war.py:TugOfWar") |> chat(instruction = "One word only.")\n'
        f"env table = tug |> play(against = {against})\n"
    )
    own = {
        "env": "table",
        "advantage": "grpo(scope = role)",
        "optimizer": "adam(3e-3)",
        "loss": "cispo()",
    }
    own["batch"] = "groups(2, group_size = 4)"
    return compiled(text + train(**own | fields) + "".join(more))


def wins(env: str = "tug |> play(against = policy)", **more: str) -> str:
    fields = {"model": "main", "env": env, "tasks": "8", "samples": "4", "first": "true"}
    return block("eval", "wins", fields | {"metrics": "[win_rate()]"} | more)


@pytest.mark.engine
@pytest.mark.slow
def test_a_policy_that_plays_against_itself_wins_against_its_start(tmp_path: Path) -> None:
    fields = {"steps": "6", "batch": "groups(6, group_size = 4)"}
    run_new(tmp_path / "run", game("self", wins(), **fields))
    before, after = metrics(tmp_path / "run", "wins")
    assert before["eval/wins/win_rate"] < 0.6
    assert after["eval/wins/win_rate"] > 0.85
    for role in ("first", "second"):
        assert after[f"eval/wins/{role}/win_rate"] > 0.7
    for record in metrics(tmp_path / "run", "main"):
        shares = [record[f"env/table/{ended}"] for ended in ("win", "draw", "loss")]
        assert sum(shares) == pytest.approx(1)
        assert shares[0] == pytest.approx(shares[2])  # whatever one wins, the other loses
        assert record["reward/mean"] == pytest.approx(0)
        assert "first_acc" not in record


def test_seats_of_a_match_are_rollouts_of_their_own(tmp_path: Path) -> None:
    run_new(tmp_path / "run", game("self", steps="1"))
    matches: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in rollouts(tmp_path / "run"):
        matches[record["task"], record["member"]].append(record)
    assert len(matches) == 2 * 4
    for first, second in matches.values():
        assert [first["role"], second["role"]] == ["first", "second"]
        assert first["reward"] == -second["reward"]


@pytest.mark.slow
@pytest.mark.parametrize("against", ["self", "policy", "past(every = 2)", PROGRAM])
def test_two_runs_of_a_seed_are_equal_to_the_bit(tmp_path: Path, against: str) -> None:
    plan = game(against, steps="3")
    for name in ("one", "two"):
        run_new(tmp_path / name, plan)
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize(
    "overlap", ["streamed(minibatches = 2)", "asynchronous(max_staleness = 2)"]
)
def test_moving_averages_go_on_as_they_were(tmp_path: Path, overlap: str) -> None:
    plan = game("self", steps="5", overlap=overlap, advantage="rae(decay = 0.9)")
    assert_resumes(plan, ("main", 3), tmp_path / "run")
    last = metrics(tmp_path / "run", "main")[-1]
    # In a game of two what one seat has won the other has lost.
    assert last["baseline/table/first"] == pytest.approx(-last["baseline/table/second"])


@pytest.mark.slow
@pytest.mark.parametrize("against", ["past(every = 2)", PROGRAM])
def test_a_resumed_run_plays_against_the_same_opponent(against: str, tmp_path: Path) -> None:
    assert_resumes(game(against, steps="6"), ("main", 3), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("against", ["past(every = 2)", PROGRAM])
def test_a_resumed_run_whose_steps_overlap_plays_against_the_same(
    against: str, tmp_path: Path
) -> None:
    plan = game(against, steps="6", overlap="asynchronous(max_staleness = 2)")
    assert_resumes(plan, ("main", 3), tmp_path / "run")


def test_the_past_is_renewed_and_no_more_of_it_is_kept_than_is_needed(tmp_path: Path) -> None:
    run_new(tmp_path / "run", game("past(every = 2)", steps="5", save="every(5)"))
    folder = RunFolder.resume(tmp_path / "run")
    assert set(folder.journal.snapshots("main")) == {4}
    folder.close()


def test_a_stage_plays_against_what_another_has_left(tmp_path: Path) -> None:
    later = train("later", env='tug |> play(against = main, seat = "second")', steps="1")
    run_new(tmp_path / "run", game("self", later, steps="2"))
    assert {record["role"] for record in rollouts(tmp_path / "run", "later")} == {"second"}


def test_what_a_program_says_is_kept_and_costs_nothing(tmp_path: Path) -> None:
    """Its tokens are nobody's: the bill has no line for an opponent."""
    plan = game(PROGRAM, wins(f"tug |> play(against = {PROGRAM})"), steps="1")
    assert [each for stage in plan.stages for each in opponent_tokens(stage, "high")] == []
    run_new(tmp_path / "run", plan)
    said = {
        text
        for one in rollouts(tmp_path / "run")
        for t in one["turns"]
        for *_, text in t.get("others", ())
    }
    assert said <= {"", "ab", "abab"}
    assert len(said) > 1
    (record,) = metrics(tmp_path / "run", "wins")[-1:]
    assert 0 <= record["eval/wins/win_rate"] <= 1
