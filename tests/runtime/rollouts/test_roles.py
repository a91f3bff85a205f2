"""Tasks played in roles, and problems: whole runs on the embedded engine, and the bookkeeping."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from run_support import (
    assert_resumes,
    block,
    compiled,
    metrics,
    rollouts,
    run_new,
    train,
    undisturbed,
)
from test_player import PLAN, ScriptedSampler, WordHistory

from rlc.chat.turns import Observation
from rlc.envs.base import Episode
from rlc.envs.build import PlayableEnv
from rlc.envs.judges.solver_judge import make_solver_judge
from rlc.envs.workers.async_adapter import make_async
from rlc.plan.parts import FailurePlan, SamplingPlan
from rlc.plan.records import Plan
from rlc.runtime.records import Rollout, Usage
from rlc.runtime.rollouts.groups import play_task
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task

pytestmark = pytest.mark.plain

WORDS = ["cat", "dog", "sun", "tree", "bird", "milk", "rain", "fish"]


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Words to spell backward, which the tiny model can do now and then."""
    monkeypatch.chdir(tmp_path)
    ask = "Spell this word backward (example: sun -> nus): "
    rows = [{"question": ask + word, "answer": word[::-1]} for word in WORDS]
    Path("words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("solve.j2").write_text("{{ problem }}\nPut your answer inside \\boxed{}.")
    Path("share.py").write_text(
        "def letters(reply, row):\n"
        "    return len(set(reply) & set(row['answer'])) / len(set(row['answer']))\n"
    )
    return 'problems("words.jsonl", grader = grade_with("share.py:letters")'


def job(source: str, *stages: str) -> Plan:
    model = 'model policy { base = "tiny" lora_rank = 4 }\n'
    return compiled(model + f"env words = {source}\n" + "".join(stages))


JUDGED = ') |> solver_judge(solvers = 2, solver_prompt = "solve.j2")'
BY_ROLE = "returns() |> baseline(mean, over = role)"


def judged(problems: str, **fields: str) -> Plan:
    stage = train(env="words", advantage=BY_ROLE, batch="groups(3, group_size = 2)", **fields)
    return job(problems + JUDGED, stage)


@pytest.mark.engine
def test_a_run_of_problems_learns_from_its_grader(problems: str, tmp_path: Path) -> None:
    fields = {"steps": "8", "optimizer": "adam(1e-2)", "batch": "groups(8, group_size = 6)"}
    run_new(tmp_path / "run", job(problems + ")", train(env="words", **fields)))
    rewards = [record["reward/words"] for record in metrics(tmp_path / "run")]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 0.15
    for record in metrics(tmp_path / "run"):
        assert record["env/words/letters"] == pytest.approx(record["reward/words"])


@pytest.mark.engine
@pytest.mark.slow
def test_solvers_learn_from_their_own_solutions(problems: str, tmp_path: Path) -> None:
    stage = train(
        env="words",
        advantage=BY_ROLE,
        batch="groups(6, group_size = 4)",
        sampling="sample(max_tokens = 16)",
        optimizer="adam(1e-2)",
        steps="5",
    )
    run_new(tmp_path / "run", job(problems + JUDGED, stage))
    rewards = [record["reward/words/solver"] for record in metrics(tmp_path / "run")]
    assert fmean(rewards[-2:]) > fmean(rewards[:2]) + 0.05


def test_a_resumed_run_goes_on_with_the_next_problem(problems: str, tmp_path: Path) -> None:
    plan = job(problems + ")", train(env="words", batch="groups(3, group_size = 2)"))
    assert_resumes(plan, ("main", 2), tmp_path / "parts")
    asked = [record["turns"][0]["observation"] for record in rollouts(tmp_path / "parts")]
    assert len(set(asked[: 8 * 2])) == 8  # the first epoch: every word once, to both members
    assert len(set(asked)) == 8


def test_a_reward_compares_each_role_with_its_own(problems: str) -> None:
    shaped = problems + JUDGED + " |> reward(total - mean(total, over = role))"
    stage = train(env="words", advantage=BY_ROLE, batch="groups(3, group_size = 2)", steps="1")
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in rollouts(undisturbed(job(shaped, stage))):
        groups[record["task"], record["role"]].append(record)
    assert sorted(map(len, groups.values())) == [2] * 3 + [4] * 3
    for group in groups.values():
        mean = fmean(record["raw_reward"] for record in group)
        expected = [record["raw_reward"] - mean for record in group]
        assert [record["reward"] for record in group] == pytest.approx(expected)
    assert any(record["reward"] for group in groups.values() for record in group)


def test_each_role_is_compared_with_its_own(problems: str) -> None:
    path = undisturbed(judged(problems, steps="2"))
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in rollouts(path):
        groups[record["step"], record["task"], record["role"]].append(record)
    assert sorted(len(group) for group in groups.values()) == [2] * 6 + [4] * 6
    for (_, _, role), group in groups.items():
        assert len(group) == {"solver": 4, "judge": 2}[role]
        mean = fmean(record["reward"] for record in group)
        for record in group:
            assert record["advantages"] == pytest.approx([record["reward"] - mean])
    assert any(record["advantages"] != [0.0] for group in groups.values() for record in group)


def test_each_role_has_metrics_of_its_own(problems: str) -> None:
    path = undisturbed(judged(problems, steps="2"))
    records = rollouts(path)
    for step in metrics(path):
        for role in ("solver", "judge"):
            rewards = [
                r["reward"] for r in records if (r["step"], r["role"]) == (step["step"], role)
            ]
            assert step[f"reward/words/{role}"] == pytest.approx(fmean(rewards))
            assert 0.0 <= step[f"{role}_acc"] <= 1.0
        assert step["rollouts/played"] == 3 * 2 * 3


@pytest.mark.engine
def test_a_judge_sees_the_solutions_of_its_own_member(problems: str) -> None:
    members: dict[Any, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for record in rollouts(undisturbed(judged(problems, steps="2"))):
        (turn,) = record["turns"]
        text = turn["action"] if record["role"] == "solver" else turn["observation"]
        members[record["task"], record["member"]][record["role"]].append(text)
    assert len(members) == 12
    for parts in members.values():
        (shown,) = parts["judge"]
        assert len(parts["solver"]) == 2
        for number, reply in enumerate(parts["solver"], start=1):
            answer = reply.partition("\\boxed{")[2].partition("}")[0]
            expected = f"<answer>{answer}</answer>" if "\\boxed{" in reply else "No solution found"
            assert f"Solution {number}:\n{expected}" in shown


@pytest.mark.parametrize("wrapper", [")", JUDGED])
def test_a_model_is_evaluated_without_training(problems: str, wrapper: str, tmp_path: Path) -> None:
    wanted = "[pass_at(1), pass_at(2), any_at(4), mean_reward()]"
    fields = {"model": "policy", "env": "words", "tasks": "3", "samples": "4", "metrics": wanted}
    stage = block("eval", "test", fields | {"sampling": "sample(max_tokens = 12)"})
    run_new(tmp_path / "run", job(problems + wrapper, stage))
    (found,) = metrics(tmp_path / "run")
    deciding = [r for r in rollouts(tmp_path / "run") if r["role"] in ("", "judge")]
    solved = [float(r["reward"] >= 1) for r in deciding]
    assert len(deciding) == 12
    assert found["eval/test/pass@1"] == pytest.approx(fmean(solved))
    assert found["eval/test/pass@1"] <= found["eval/test/pass@2"] <= found["eval/test/any@4"]
    assert found["eval/test/mean_reward"] == pytest.approx(fmean(r["reward"] for r in deciding))
    assert ("eval/test/solver/pass@2" in found) == (wrapper == JUDGED)


class Problem:
    """Every answer is worth 1; the first ``broken`` steps of all raise."""

    broken = 0

    def __init__(self) -> None:
        self.first = Observation("what?")

    def step(self, action: str) -> Observation:
        Problem.broken -= 1
        if Problem.broken >= 0:
            raise OSError("the grader crashed")
        return Observation("", 1.0, True)


class Problems:
    def group(self, seed: int, size: int) -> list[Episode]:
        return [Problem() for _ in range(size)]


def play(broken: int, retries: int = 0) -> tuple[list[Rollout], ScriptedSampler]:
    Problem.broken = broken
    usual = {"solvers": 2, "solver_prompt": None, "judge_prompt": None}
    roles = make_solver_judge(usual, WordHistory, in_box=False)
    sampler, sampling = ScriptedSampler(), SamplingPlan(4)
    player = Player(sampler, sampling, None, FailurePlan(retries, "drop", None), Usage())
    env = PlayableEnv(PLAN, make_async(Problems()), WordHistory, roles)
    return asyncio.run(play_task(player, Task(env, number=5, size=2, seed=1))), sampler


def test_all_solvers_share_one_request_and_every_judge_has_its_own() -> None:
    played, sampler = play(broken=0)
    assert [(r.member, r.role) for r in played] == [
        *[(0, "solver"), (0, "solver"), (0, "judge")],
        *[(1, "solver"), (1, "solver"), (1, "judge")],
    ]
    assert [request.count for request in sampler.requests] == [4, 1, 1]
    assert len({request.seed for request in sampler.requests}) == 3


def test_a_judge_is_not_asked_where_a_solver_failed() -> None:
    played, sampler = play(broken=1)
    assert [bool(r.error) for r in played] == [True, False, True, False, False, False]
    assert played[2].error == "a solver failed: OSError: the grader crashed"
    assert (played[2].credit, played[2].turns) == ((), ())
    assert len(sampler.requests) == 2


def test_a_failed_solver_is_played_again() -> None:
    played, sampler = play(broken=1, retries=1)
    assert not any(rollout.error for rollout in played)
    assert [request.count for request in sampler.requests] == [4, 1, 1, 1]
