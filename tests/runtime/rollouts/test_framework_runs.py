"""Whole runs in environments of other frameworks: what is trained on is what was sampled.

A framework that is not installed has its tests skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from run_support import (
    assert_resumes,
    compiled,
    metrics,
    rollouts,
    run,
    run_new,
    shortened,
    train,
)
from spending import bounded

from rlc.compile.recipe import load
from rlc.compile.variants import rehearse
from rlc.plan.records import Plan
from rlc.runtime.start import open_run

pytestmark = [pytest.mark.plain, pytest.mark.slow]


def needs(package: str) -> pytest.MarkDecorator:
    missing = find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed (rlc[{package}])")


def recipe(*stages: str, **kinds: str) -> Plan:
    lines = ['model policy { base = "tiny" lora_rank = 4 }']
    for name, args in kinds.items():
        lines.append(f'env {name} = verifiers("vf_environments", args = {{ {args} }})')
    return compiled("\n".join([*lines, *stages]))


BATCH: dict[str, Any] = {"batch": "groups(2, group_size = 3)", "steps": "1"}


@needs("verifiers")
def test_an_episode_is_one_sequence_unless_the_environment_edits_what_was_said(
    tmp_path: Path,
) -> None:
    """On-policy the trainer's logprobs are the sampler's, token for token: a prompt that was not
    the one that was sampled from would show."""
    goes_on = 'kind = "guessing", turns = 4'
    for name, args, datums in (("on", goes_on, 6), ("edited", f"{goes_on}, edit = true", 18)):
        job = recipe(train(env="guess", advantage="returns()", **BATCH), guess=args)
        run_new(tmp_path / name, job)
        (step,) = metrics(tmp_path / name)
        assert step["turns/mean"] == 4
        assert step["optim/datums"] == datums
        assert abs(step["kl/sample_train_k2"]) < 1e-9
        assert step["env/guess/num_turns"] == 4
        assert all(each["ended"] == "truncated" for each in rollouts(tmp_path / name))


@needs("verifiers")
def test_a_shaped_reward_knows_the_functions_of_the_rubric(tmp_path: Path) -> None:
    text = 'env one = verifiers("vf_environments") |> reward(2 * brief - 0.001 * tokens)\n'
    model = 'model policy { base = "tiny" lora_rank = 4 }\n'
    run_new(tmp_path / "run", compiled(model + text + train(env="one", **BATCH)))
    for each in rollouts(tmp_path / "run"):
        brief = each["turns"][-1]["metrics"]["brief"]
        sampled = each["turns"][-1]["tokens"]
        assert each["reward"] == pytest.approx(2 * brief - 0.001 * sampled)


@needs("verifiers")
def test_a_run_that_was_stopped_goes_on_as_it_would_have(tmp_path: Path) -> None:
    job = recipe(train(env="tools"), tools='kind = "tools"')
    assert_resumes(job, ("main", 2), tmp_path)


@needs("verifiers")
def test_a_function_that_fails_costs_the_rollout_and_not_the_run(tmp_path: Path) -> None:
    job = recipe(
        train(env="odd", on_error="retry(1) then drop", give_up="failures(share = 1)", **BATCH),
        odd='kind = "broken_rubric"',
    )
    run_new(tmp_path / "run", job)
    (step,) = metrics(tmp_path / "run")
    assert step["rollouts/failed"] == 6
    assert "grumpy" in (tmp_path / "run" / "failures.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "env", "metric"),
    [
        pytest.param("verifiers", "words", "num_turns", marks=needs("verifiers")),
        ("harbor", "tasks", "commands"),
        pytest.param("mcp_tools", "sums", "tool_calls", marks=needs("mcp")),
    ],
)
def test_the_recipes_of_the_project_rehearse(
    name: str, env: str, metric: str, tmp_path: Path
) -> None:
    stand_in = {"tasks.runtime": "subprocess"} if name == "harbor" else {}
    plan = load(f"recipes/{name}.rl", stand_in).plan
    assert plan is not None
    job = shortened(rehearse(plan))
    with bounded(job):
        run(open_run(job, tmp_path / "run"))
    assert f"env/{env}/{metric}" in metrics(tmp_path / "run")[-1]
