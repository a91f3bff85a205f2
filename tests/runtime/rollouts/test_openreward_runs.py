"""Whole runs in environments of a real OpenReward server: mixtures, failures, resuming, uploads."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from openreward_servers import KEY, base_url
from plan_recipes import recipe as recipe_text
from run_support import (
    assert_resumes,
    block,
    compiled,
    metrics,
    plan,
    rollouts,
    run_new,
    shortened,
    train,
)
from spending import bounded

from rlc.compile.variants import rehearse
from rlc.plan.records import Plan
from rlc.runtime.records import RunError
from rlc.runtime.start import open_run

pytestmark = [pytest.mark.plain, pytest.mark.server]


def recipe(*stages: str, **envs: str) -> Plan:
    """A plan on the tiny model; each environment is ``Name``, then what else the recipe says."""
    lines = ['model policy { base = "tiny" lora_rank = 4 }']
    for name, text in envs.items():
        head, pipe, wrappers = text.partition(" |> ")
        place, comma, args = head.partition(", ")
        call = f'openreward("Test/{place}", base_url = "{base_url()}"{comma}{args})'
        lines.append(f"env {name} = {call}{pipe}{wrappers}")
    return compiled("\n".join([*lines, *stages]))


def test_a_split_that_is_not_there_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    job = recipe(train(env="shop"), shop='Shop, split = "night"')
    with pytest.raises(RunError, match="`shop` cannot be played: it has no split `night`"):
        open_run(job, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def uploaded() -> list[dict[str, Any]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{base_url()}/v1/rollouts", timeout=60) as response:
        events: list[dict[str, Any]] = json.load(response)
        return events


MIXTURE = {
    "reverse": "Reverse |> rollouts(group_size = 3)",
    "shop": "Shop |> reward(mean, nonterminal = -0.5, low = -0.25)",
}


def test_a_mixture_of_two_is_trained_and_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENREWARD_API_KEY", KEY)
    monkeypatch.setenv("OPENREWARD_API_URL", base_url())
    track = '[openreward_rollouts("two games")]'
    fields = {"env": "1 * reverse + 1 * shop", "batch": "groups(4, group_size = 2)", "steps": "2"}
    stage = train(**fields, sampling="sample(max_tokens = 8)", track=track)
    run_new(tmp_path / "run", recipe(stage, **MIXTURE))
    first, second = metrics(tmp_path / "run", "main")
    assert first["reward/shop"] == second["reward/shop"] == -0.25  # it never ends by itself
    assert 0 <= first["reward/reverse"] <= 1
    assert first["env/shop/tool_calls"] == 0.0
    played = rollouts(tmp_path / "run", "main")
    assert {(r["env"], r["ended"]) for r in played} == {("reverse", "done"), ("shop", "truncated")}
    assert len([r for r in played if r["env"] == "reverse"]) == 2 * 2 * 3
    assert second["uploads/failed"] == 0.0
    started = [e for e in uploaded() if e.get("runName") == "two games"]
    assert len(started) == len(played)
    assert {e["environment_id"] for e in started} == {"id-of-Reverse", "id-of-Shop"}
    said = [e for e in uploaded() if e.get("rolloutEventId") == started[0]["eventId"]]
    assert [e["type"] for e in said] == ["user_message", "assistant_message"]
    reward = started[0]["metadata"]["reward"]
    assert said[-1].get("reward") == (
        reward if started[0]["environment"] == "Test/Reverse" else None
    )


def test_uploads_that_fail_are_counted_and_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENREWARD_API_KEY", "a wrong key")
    monkeypatch.setenv("OPENREWARD_API_URL", base_url())
    track = '[openreward_rollouts("nowhere")]'
    stage = train(env="reverse", batch="groups(2, group_size = 2)", steps="1", track=track)
    run_new(tmp_path / "run", recipe(stage, reverse="Reverse"))
    assert len(metrics(tmp_path / "run", "main")) == 1
    assert "4 episodes of `main` not uploaded" in caplog.text


def test_failures_of_one_environment_neither_stop_nor_skew_the_other(tmp_path: Path) -> None:
    """Its prompt has a picture, so no rollout of it succeeds with a model that reads text."""
    fields = {
        "env": "1 * reverse + 1 * pictures",
        "batch": "groups(2, group_size = 2)",
        "steps": "1",
    }
    run_new(tmp_path / "run", recipe(train(**fields), reverse="Reverse", pictures="Pictures"))
    (step,) = metrics(tmp_path / "run", "main")
    assert (step["rollouts/failed"], step["rollouts/played"]) == (2.0, 2.0)
    assert step["reward/mean"] == step["reward/reverse"]
    errors = {r["error"] for r in rollouts(tmp_path / "run") if r["env"] == "pictures"}
    (error,) = errors
    assert "(Qwen3Instruct) shows no images; take a model that sees" in error


def test_groups_that_are_scored_as_a_whole(tmp_path: Path) -> None:
    """The longest reply of each group has the reward, in training and in an evaluation."""
    fields = {"env": "rated", "batch": "groups(2, group_size = 4)", "steps": "1"}
    check = {"model": "policy", "env": "rated", "tasks": "2", "samples": "3"}
    check |= {"sampling": "sample(max_tokens = 8)"}
    stages = (block("eval", "before", check), train(**fields))
    run_new(tmp_path / "run", recipe(*stages, rated="Judged"))
    for stage, size in (("before", 3), ("main", 4)):
        played = rollouts(tmp_path / "run", stage)
        for group in (played[:size], played[size:]):
            assert len(group) == size
            lengths = [len(r["turns"][0]["action"].removesuffix("<|im_end|>")) for r in group]
            scored = [r["turns"][0]["metrics"]["group_score"] for r in group]
            assert scored == [r["reward"] for r in group]
            assert scored == [float(length == max(lengths)) for length in lengths]


def test_a_resumed_run_goes_on_with_the_next_tasks(tmp_path: Path) -> None:
    fields = {
        "env": "reverse",
        "batch": "groups(2, group_size = 2)",
        "steps": "3",
        "save": "every(1)",
    }
    job = recipe(train(**fields), reverse="Reverse")
    assert_resumes(job, ("main", 1), tmp_path / "cut")
    observations = {r["turns"][0]["observation"] for r in rollouts(tmp_path / "cut")}
    assert len(observations) == 6


def test_the_recipe_rehearses_in_the_real_environment(tmp_path: Path) -> None:
    text = recipe_text("openreward_games")
    local = re.sub(r"http://127\.0\.0\.1:\d+", base_url(), text)
    job = shortened(rehearse(compiled(local, {"calls.steps": "1", "main.steps": "1"})))
    with bounded(job):
        run_new(tmp_path / "run", job)
    (step,) = metrics(tmp_path / "run", "main")
    assert {"reward/guess", "env/guess/tool_calls"} <= set(step)
    assert len(metrics(tmp_path / "run", "calls")) == 1


def test_the_guides_recipe_can_be_run() -> None:
    """With keys; without them the refusal names what is missing."""
    job = rehearse(plan("openreward"))
    with pytest.raises(RunError, match="OPENREWARD_API_KEY in the environment"):
        open_run(job, Path("never"))
