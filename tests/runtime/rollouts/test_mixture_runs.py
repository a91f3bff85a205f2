"""A mixture in a real run: labels stay with their rollouts, also if groups are left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from run_support import block, metrics, plan, rollouts, run, run_new, tiny, train

from rlc.runtime.journal.folder import RunFolder

pytestmark = pytest.mark.plain

ENVS = """\
env games = gem("game:GuessTheNumber-v0-easy") |> chat() |> rollouts(group_size = 3)
env words = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\\\boxed{}.")
  |> rollouts(group_size = 5, temperature = 0.5)
"""


def mixed(**fields: str) -> Any:
    return tiny(ENVS, train(**{"env": "3 * words + games", "batch": "groups(4)"} | fields))


def of_env(path: Path, step: int) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for record in rollouts(path):
        if record["step"] == step:
            found[record["env"]].append(record)
    return found


def test_every_environment_has_its_own_groups_metrics_and_scope(tmp_path: Path) -> None:
    scheme = "returns() |> baseline(mean, over = env) |> scale(std, over = env, eps = 0.5)"
    run_new(tmp_path / "run", mixed(advantage=scheme, steps="2"))
    for step in metrics(tmp_path / "run"):
        found = of_env(tmp_path / "run", step["step"])
        assert {env: len(records) for env, records in found.items()} == {"words": 15, "games": 3}
        for env, records in found.items():
            rewards = [record["reward"] for record in records]
            assert step[f"reward/{env}"] == pytest.approx(fmean(rewards))
            for record in records:  # against its own environment alone
                wanted = (record["reward"] - fmean(rewards)) / (stdev(rewards) + 0.5)
                assert record["advantages"] == pytest.approx([wanted] * len(record["turns"]))


def test_metrics_are_of_the_right_environment_where_groups_are_dropped(tmp_path: Path) -> None:
    run_new(tmp_path / "run", mixed(advantage="grpo(constant = drop)", batch="groups(8)"))
    left_out = Counter[str]()
    for step in metrics(tmp_path / "run"):
        for env, records in of_env(tmp_path / "run", step["step"]).items():
            groups = defaultdict(set)
            for record in records:
                groups[record["task"]].add(record["reward"])
            constant = [rewards for rewards in groups.values() if len(rewards) == 1]
            left_out[env] += len(constant)
            solved = sum(max(rewards) >= 1 for rewards in constant)
            assert step[f"reward/{env}"] == pytest.approx(fmean(r["reward"] for r in records))
            assert step[f"groups/constant/{env}"] == pytest.approx(len(constant) / len(groups))
            assert step[f"groups/all_good/{env}"] == pytest.approx(solved / len(groups))
            assert step[f"groups/all_bad/{env}"] == pytest.approx(
                (len(constant) - solved) / len(groups)
            )
    assert sum(left_out.values()) > 0


def test_a_resumed_run_continues_each_environments_tasks(tmp_path: Path) -> None:
    run_new(tmp_path / "run", mixed(), stop_after=("main", 2))
    run(RunFolder.resume(tmp_path / "run"))
    tasks: dict[str, list[int]] = {"words": [], "games": []}
    for record in rollouts(tmp_path / "run"):
        if record["member"] == 0:
            tasks[record["env"]].append(record["task"])
    assert tasks == {"words": list(range(12)), "games": list(range(4))}  # 3 to 1, none twice


@pytest.mark.engine
def test_an_evaluation_needs_no_training(tmp_path: Path) -> None:
    small = {"games.tasks": "4", "games.samples": "2", "countdown.tasks": "2"}
    small |= {"games.metrics": "[pass_at(1), pass_at(2), any_at(2)]"}
    summary = run_new(tmp_path / "run", plan("evaluate_only", small))
    assert (summary.state, summary.stages) == ("finished", [])
    duel, games = metrics(tmp_path / "run")
    assert {"eval/countdown/pass@2", "eval/countdown/solver/any@2"} <= duel.keys()
    assert 0 < games["eval/games/pass@1"] <= games["eval/games/pass@2"] == games["eval/games/any@2"]
    # The tiny model cannot say it at all, which is not the same as being wrong.
    assert (duel["eval/countdown/format"], duel["eval/countdown/cut_off"]) == (0.0, 1.0)


def test_two_stages_of_one_mixture_have_tasks_of_their_own(tmp_path: Path) -> None:
    """Else what the first has learned would be asked again."""
    second = block("train", "more", {
        "model": "main", "env": "words", "batch": "groups(2)", "steps": "1",
        "sampling": "sample(max_tokens = 12)", "advantage": "grpo()",
        "loss": "importance_sampling()", "optimizer": "adam(1e-3)",
    })  # fmt: skip
    first = train(env="words", batch="groups(2)", steps="1")
    run_new(tmp_path / "run", tiny(ENVS, first, second))
    digests = [{r["digest"] for r in rollouts(tmp_path / "run", name)} for name in ("main", "more")]
    assert not digests[0] & digests[1]
