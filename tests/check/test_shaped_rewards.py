"""Shaped rewards: read, kept in plans, shown, and computed as they are defined."""

from __future__ import annotations

import json
import re
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_support import TINY, compiled, metrics, rollouts, run, run_new, train

from rlc.cli.main import main
from rlc.compile.recipe import compile_source
from rlc.explanation.diff import diff_plans, diff_text
from rlc.explanation.stages import stage_formulas
from rlc.lang.source import Source
from rlc.plan.codec import plan_from_dict, plan_hash, plan_to_dict
from rlc.plan.environments import RewardPlan
from rlc.plan.records import Plan
from rlc.plan.stages import Rollouts, Training
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Turn
from rlc.runtime.rollouts.credit import ShapedRewardError, episode_credit, raw_reward

EVAL = (
    "eval heldout { model = main  env = hints  tasks = 4  samples = 2  metrics = [pass_at(1)] }\n"
)


def plan_of(shape: str, more: str = "") -> Plan:
    hints = 'env hints = gem("game:GuessTheNumber-v0-easy") |> chat()'
    return compiled(f"{TINY}{hints} |> reward({shape})\n{train(env='hints', steps='3')}{more}")


def reward_of(shape: str) -> RewardPlan:
    stage = plan_of(shape).stages[0]
    assert isinstance(stage, Training)
    return stage.of(Rollouts).envs[0].reward


def turn(reward: float | None, tokens: int, stopped: str = "stop", **measured: float) -> Turn:
    ids = array("q", [0] * tokens)
    return Turn([], ids, [0.0] * tokens, "", "", reward, stopped, measured)


@pytest.mark.parametrize("length", [1, 767, 768, 769, 896, 1_023, 1_024, 1_025])
def test_overlong_shaping_is_that_of_dapo(length: int) -> None:
    """Equation 13 of arXiv 2503.14476, with L_max = 1,024 and L_cache = 256."""
    most, cache = 1_024, 256
    punished = float(
        np.select(
            [length <= most - cache, length <= most], [0.0, (most - cache - length) / cache], -1.0
        )
    )
    plan = reward_of("total + clip((768 - tokens) / 256, -1, 0)")
    assert episode_credit(plan, [turn(1.0, length)], True) == (1.0 + punished,)


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.integers(1, 50)), min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from(["stop", "length"]),
)
def test_what_it_reads_is_the_whole_episode(
    played: list[tuple[float, int]], ended: bool, stopped: str
) -> None:
    turns = [turn(reward, tokens, stopped, correct=0.5) for reward, tokens in played]
    total = sum(reward for reward, _ in played)
    sampled, cut_off = sum(tokens for _, tokens in played), not ended or stopped == "length"
    expected = 0.25 * total + 0.5 - 0.01 * sampled + len(turns) - 3.0 * cut_off
    credit = episode_credit(SHAPE, turns, ended)
    assert credit[-1] == pytest.approx(expected, abs=1e-12)
    assert not any(credit[:-1])
    assert raw_reward(SHAPE, turns, ended) == pytest.approx(total)


SHAPE = reward_of("0.25 * total + correct - 0.01 * tokens + turns - where(truncated, 3, 0)")


@pytest.mark.parametrize(
    ("shape", "credit"),
    [
        ("mean, shaped = total + 1", 2.5),
        ("total - 10, low = -1", -1),
        ("total * 10, nonterminal = -2, high = 5", 5),
        ("max, shaped = -total", -2),
    ],
)
def test_the_other_settings_keep_their_meaning(shape: str, credit: float) -> None:
    assert episode_credit(reward_of(shape), [turn(1.0, 3), turn(2.0, 3)], True) == (0.0, credit)


def test_an_episode_without_a_component_fails_with_its_name() -> None:
    plan = reward_of("total + absent")
    with pytest.raises(ShapedRewardError, match="the reward reads `absent`"):
        episode_credit(plan, [turn(1.0, 3)], True)
    assert episode_credit(plan, [], False) == ()  # no turn, no reward


def test_a_component_may_have_a_name_that_losses_read() -> None:
    plan = reward_of("total * ratio")
    assert episode_credit(plan, [turn(1.0, 3, ratio=0.5)], True) == (0.5,)


def test_a_declared_grader_can_give_a_component_its_name() -> None:
    text = """\
grader share = exact
env sums = problems(countdown, grader = { share = share }) |> reward(share - 0.01 * tokens)
"""
    found = compile_source(Source("r.rl", text)).diagnostics
    assert [item.message for item in found if item.severity == "error"] == []


def test_words_stay_words() -> None:
    assert reward_of("turns, low = 0").shaped is None
    assert reward_of("mean").reduce == "mean"
    assert reward_of("turns - 1").shaped is not None


def test_another_word_is_told_of_words_and_of_expressions() -> None:
    text = TINY.replace("|> chat()", "|> chat() |> reward(logp)") + train()
    (item,) = compile_source(Source("r.rl", text)).diagnostics
    assert item.help is not None
    assert item.help.endswith("`turns`; or an expression such as `total - 0.001 * tokens`")


def test_a_plan_keeps_the_expression_and_shows_its_formula() -> None:
    plan, other = plan_of("total - 0.001 * tokens"), plan_of("total - 0.002 * tokens")
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan
    assert plan_hash(plan) != plan_hash(other)
    assert "reward = total − 0.001 tokens" in stage_formulas(plan.stages[0])["reward of hints"]
    text = diff_text(diff_plans(plan, other), "a", "b")
    assert "+ reward = total − 0.002 tokens" in text
    assert "shaped" not in json.dumps(plan_to_dict(compiled(TINY + train()))["stages"])


@pytest.mark.engine
def test_a_run_trains_on_the_shaped_reward_and_keeps_the_raw_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of("total - 0.001 * tokens", EVAL)
    summary = run_new(tmp_path / "run", plan)
    played = rollouts(tmp_path / "run")
    for record in played:
        tokens = sum(turn["tokens"] for turn in record["turns"])
        assert record["reward"] == pytest.approx(record["raw_reward"] - 0.001 * tokens, abs=1e-12)
    first = metrics(tmp_path / "run")[0]
    mine = [record for record in played if record["step"] == 1 and record["stage"] == "main"]
    raw = sum(record["raw_reward"] for record in mine) / len(mine)
    assert first["raw_reward/hints"] == pytest.approx(raw)
    assert first["reward/hints"] < first["raw_reward/hints"]
    # No shaped reward is 1, and tasks count as solved all the same.
    (result,) = summary.evaluations
    solved = [r["raw_reward"] >= 1 for r in played if r["stage"] == "heldout"]
    assert result.metrics["pass@1"] == pytest.approx(sum(solved) / len(solved))
    assert any(solved)
    assert main(["show", str(tmp_path / "run")]) == 0
    assert re.search(r"reward -?\d\.\d+ \(\d\.\d+ before it was shaped\)", capsys.readouterr().out)
    run_new(tmp_path / "stopped", plan, stop_after=("main", 2))
    run(RunFolder.resume(tmp_path / "stopped"))
    again = [(r["reward"], r["raw_reward"]) for r in rollouts(tmp_path / "stopped")]
    assert again == [(r["reward"], r["raw_reward"]) for r in played]
