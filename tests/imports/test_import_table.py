"""The seeds' jobs: what the imported recipes and those in ``recipes/`` decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from import_cases import COMMANDS, OPENREWARD_RESUMED
from paths import RECIPES, ROOT
from stage_parts import flat

from rlc.algo import OPERATIONS, AdvantageScheme, scope_of
from rlc.catalog.facts import find_retired
from rlc.compile.recipe import compile_source, load
from rlc.imports.convert import convert, job_of_text
from rlc.lang.source import Source
from rlc.plan.environments import EnvPlan
from rlc.plan.records import Plan
from rlc.plan.stages import Evaluation, Training

BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
ADAM = (0.9, 0.95, 1e-8)


def replaced(base: str) -> str:
    retired = find_retired(base)
    return retired.use if retired else base


def imported(text: str) -> Plan:
    return _complete(compile_source(Source("imported.rl", convert(job_of_text(text)))).plan)


def written(name: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A recipe of the folder; its files are named from the root."""
    monkeypatch.chdir(ROOT)
    return _complete(load(RECIPES / f"{name}.rl").plan)


def _complete(plan: Plan | None) -> Plan:
    assert plan is not None
    return plan


def training(plan: Plan) -> Training:
    (stage,) = (stage for stage in plan.stages if isinstance(stage, Training))
    return stage


def facts(stage: Training) -> dict[str, Any]:
    """The values that the table of the seeds' jobs is about."""
    adam, batch = stage.optimizer, flat(stage).batch
    return {
        "model": (stage.model.base, stage.model.lora_rank),
        "batch": (batch.kind, batch.count, batch.parallel or batch.size, batch.updates),
        "sampling": (flat(stage).sampling.max_tokens, flat(stage).sampling.temperature),
        "advantage": scheme(flat(stage).advantage),
        "loss": (flat(stage).loss.name, flat(stage).loss.config),
        "rate": adam.learning_rate,
        "adam": (adam.beta1, adam.beta2, adam.eps),
        "steps": stage.steps,
        "save": stage.save.every,
        "kl": flat(stage).kl,
    }


def scheme(advantage: AdvantageScheme) -> tuple[Any, ...]:
    """What it is of, its discount, each statistic with its scope, and what becomes of equals."""
    nodes = advantage.result.nodes
    gamma = next((nodes[node.args[1]].value for node in nodes if node.op == "discounted"), 1.0)
    compared = {(OPERATIONS[node.op].word, node.over) for node in nodes if scope_of(node)}
    kept = "keep" if advantage.keep is None else "drop"
    return (advantage.result.shape, gamma, *sorted(compared), kept)


def pipeline(env: EnvPlan) -> list[str]:
    return [step.name for step in env.wrappers]


BASE = "Qwen/Qwen3-8B-Base"
CENTERED = ("episode", 1.0, ("mean", "group"), "keep")
COOKBOOK = {
    "model": (replaced(BASE), 32),
    "sampling": (2048, 1.0),
    "advantage": CENTERED,
    "loss": ("importance_sampling", {}),
    "rate": 2e-5,
    "adam": ADAM,
    "steps": 200,
    "save": 25,
    "kl": None,
}


def low_level(base: str, parallel: int, longest: int, gamma: float) -> dict[str, Any]:
    return {
        "model": (replaced(base), 32),
        "batch": ("turns", 128, parallel, 1),
        "sampling": (longest, 1.0),
        "advantage": ("turn", gamma, ("mean", "batch"), ("std", "batch"), "keep"),
        "loss": ("importance_sampling", {}),
        "rate": 4e-5,
        "adam": ADAM,
        "steps": 200,
        "kl": None,
    }


GEM: dict[str, dict[str, Any]] = {
    "gem_math": {**COOKBOOK, "batch": ("groups", 64, 16, 1)},
    "gem_reasoning": {**COOKBOOK, "batch": ("groups", 64, 8, 1)},
    "gem_deepscaler": {**low_level(BASE, 128, 8192, 0.9), "save": None},
    "gem_python_tool": {
        **low_level("meta-llama/Llama-3.1-8B-Instruct", 128, 2048, 1.0),
        "save": None,
    },
    "sudoku": low_level(BASE, 64, 1024, 0.9),
}
ENVIRONMENTS = {
    "gem_math": ("math:Math12K", ["chat"]),
    "gem_reasoning": ("rg:simple_equations", ["chat"]),
    "gem_deepscaler": ("math:DeepScaleR40K", ["concat", "template"]),
    "gem_python_tool": ("math:Math12K", ["python_tool", "concat_chat", "template"]),
    "sudoku": ("game:Sudoku-v0-easy", ["concat", "template"]),
}
# The recipes that fulfil a wish of the guide: turns that go on, fewer episodes for as many turns.
WISHED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gem_python_tool": ({}, ["python_tool", "chat"]),
    "sudoku": ({"batch": ("turns", 128, 16, 1)}, ["chat"]),
}


@pytest.mark.parametrize("how", ["imported", "written"])
@pytest.mark.parametrize("name", sorted(GEM))
def test_the_jobs_of_gem(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = imported(COMMANDS[name]) if how == "imported" else written(name, monkeypatch)
    stage, (game, steps) = training(plan), ENVIRONMENTS[name]
    other, steps = WISHED.get(name, ({}, steps)) if how == "written" else ({}, steps)
    shown, expected = facts(stage), GEM[name] | other
    assert {key: shown[key] for key in expected} == expected
    (env,) = flat(stage).envs
    assert (env.id, pipeline(env)) == (game, steps)
    if name.startswith("gem_math"):
        assert env.args["use_mp"] is False
    last = env.wrappers[-1].args
    assert last.get("instruction", "") in ("", BOXED)
    templates = {"gem_deepscaler": "qwen3_general", "gem_python_tool": "no", "sudoku": "qwen3_game"}
    assert last.get("name") == (templates.get(name) if steps[-1] == "template" else None)


@pytest.mark.parametrize("how", ["imported", "written"])
def test_the_python_tool(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "gem_python_tool"
    plan = imported(COMMANDS[name]) if how == "imported" else written(name, monkeypatch)
    assert flat(training(plan)).envs[0].wrappers[0].args == {
        "timeout": 5,
        "uses": 5,
        "reward_use": 0.0,
        "reward_success": 0.0,
        "errors": "last_line",
    }


@pytest.mark.parametrize("how", ["imported", "written"])
def test_the_job_of_openreward(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = imported(OPENREWARD_RESUMED) if how == "imported" else written("openreward", monkeypatch)
    stage = training(plan)
    shown = facts(stage)
    assert shown["model"] == (replaced("Qwen/Qwen3-30B-A3B"), 8)
    assert shown["batch"][:2] == ("groups", 32)
    assert flat(stage).sampling.max_episode_tokens == 32_768
    assert shown["advantage"] == ("episode", 1.0, ("mean", "group"), ("std", "group"), "drop")
    assert shown["loss"][0] == "ppo"
    assert (shown["rate"], shown["save"]) == (1e-5, 10)
    assert [tracker.name for tracker in stage.track] == ["wandb", "openreward_rollouts"]
    assert stage.track[0].args == {"project": "tinker-test", "run": "tinker-rl-test-openreward"}
    assert stage.track[1].args == {"run": "tinker-rl-test-openreward"}
    whodunit, gsm8k = flat(stage).envs
    for env in flat(stage).envs:
        assert (env.args["split"], env.args["shuffle"], env.args["samples"]) == (
            "train",
            True,
            None,
        )
    assert whodunit.id == "GeneralReasoning/WhoDunIt"
    assert (whodunit.rollouts.group, whodunit.rollouts.max_failures) == (16, 2)
    assert whodunit.rollouts.temperature == 1.0
    assert (whodunit.reward.reduce, whodunit.reward.nonterminal) == ("sum", 0.0)
    assert gsm8k.id == "MATH/GSM8K"
    assert (gsm8k.rollouts.group, gsm8k.rollouts.temperature) == (8, 0.7)
    assert gsm8k.reward.reduce == "mean"


def test_openreward_goes_on_from_a_saved_state() -> None:
    weights = "tinker://run-id/weights/checkpoint_000050"
    assert training(imported(OPENREWARD_RESUMED)).model.weights == weights


# name: batch, longest reply, rate, epochs, evaluated every, first
SOLVER_JUDGE = {
    "solver_judge": ((32, 4), 1024, 4e-5, 10, 20, True),
    "solver_judge_script": ((64, 4), 1024, 4e-5, 10, 20, False),
    "solver_judge_overrides": ((32, 8), 2048, 2e-5, 20, 5, True),
}


@pytest.mark.parametrize("name", sorted(SOLVER_JUDGE))
def test_the_job_of_rllm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = imported(COMMANDS[name]) if name in COMMANDS else written(name, monkeypatch)
    stage = training(plan)
    batch, longest, rate, epochs, every, first = SOLVER_JUDGE[name]
    assert (flat(stage).batch.count, flat(stage).batch.size) == batch
    assert (flat(stage).sampling.max_tokens, flat(stage).sampling.max_prompt_tokens) == (
        longest,
        2048,
    )
    assert (stage.optimizer.learning_rate, stage.epochs, stage.save.every) == (rate, epochs, 20)
    assert flat(stage).loss.name == "importance_sampling"
    kept = ("episode", 1.0, ("mean", "role"), ("std", "role"), "keep")
    assert scheme(flat(stage).advantage) == kept
    assert "wandb" in [tracker.name for tracker in stage.track]
    (env,) = flat(stage).envs
    assert (env.id, env.args["split"]) == ("countdown_tasks", "train")
    assert [part.grader for part in env.graders] == ["countdown"]
    assert env.wrappers[-1].args["solvers"] == 2
    heldout = next(s for s in plan.stages if isinstance(s, Evaluation) and s.after == "main")
    assert (heldout.every, heldout.first, heldout.tasks) == (every, first, 1_024)
    assert heldout.envs[0].args["split"] == "test"


def test_solver_judge_is_also_evaluated_without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = written("solver_judge", monkeypatch)
    before = next(s for s in plan.stages if isinstance(s, Evaluation) and s.after is None)
    assert [(metric.name, metric.k) for metric in before.metrics] == [
        ("pass_at", 1),
        ("pass_at", 8),
    ]
    assert before.model.lora_rank == 32


def test_the_cookbook_tutorial(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = training(written("cookbook_tutorial", monkeypatch))
    shown = facts(stage)
    assert shown["model"] == ("Qwen/Qwen3.5-4B", 32)
    assert stage.model.renderer == "qwen3_5"
    assert shown["batch"] == ("groups", 2, 4, 1)
    assert shown["sampling"][0] == 512
    assert shown["advantage"] == (*CENTERED[:-1], "drop")
    assert shown["loss"] == ("importance_sampling", {})
    assert f"{shown['rate']:.2e}" == "4.91e-04"  # as the tutorial prints it
    assert (shown["adam"], shown["steps"]) == (ADAM, 4)
    (env,) = flat(stage).envs
    assert env.args["format_coef"] == 0.1
    assert env.args["suffix"].strip() == "Write your answer in \\boxed{} format."


def test_the_tutorial_has_eight_problems_and_a_solved_one() -> None:
    folder = RECIPES / "data"
    problems = rows(folder / "word_problems.jsonl")
    assert len({problem["question"] for problem in problems}) == 8
    assert all(problem["answer"].isdigit() for problem in problems)
    (solved,) = rows(folder / "word_problems_few_shot.jsonl")
    assert solved["answer"].endswith("\\boxed{26}")


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# What the head of each recipe says where `rlc check` warns.
EXPLAINED = {
    "RL0409": "`rlc check` warns: the gradient",
    "RL0413": "`rlc check` warns that the clip never acts",
    "RL0414": "`rlc check` warns that concat() changes nothing",
    "RL0415": "the square of the turns, as `rlc check` warns",
}
IMPORTED = [*GEM, "openreward", "solver_judge", "cookbook_tutorial"]


@pytest.mark.parametrize("name", IMPORTED)
def test_the_recipes_explain_their_warnings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    path = RECIPES / f"{name}.rl"
    lines = [line.partition("# ")[2].strip() for line in path.read_text().splitlines()]
    comments = " ".join(lines)
    for warning in load(path).diagnostics:
        assert EXPLAINED[warning.code] in comments
