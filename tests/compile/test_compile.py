"""From a recipe to a plan: every value decided, every origin known."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_recipes import EVERYTHING, RECIPE_FILES, RECIPE_TEXTS, first_train, planned, recipe
from stage_parts import flat

from rlc.algo.scheme import Baseline, Clip, Scale
from rlc.compile.recipe import compile_source, load
from rlc.lang.source import Source
from rlc.plan.leaves import leaves
from rlc.plan.records import Plan


def stage_leaves(plan: Plan) -> dict[str, object]:
    return {
        path: value
        for stage in plan.stages
        for path, value in leaves(stage, f"stages.{stage.name}")
    }


@pytest.mark.parametrize("path", RECIPE_FILES, ids=lambda path: path.stem)
def test_a_recipe_of_the_project_has_no_warning_that_it_does_not_explain(path: Path) -> None:
    """A comment stands beside what is warned of, or shortly above it."""
    compiled = load(path)
    assert compiled.plan is not None
    lines = path.read_text(encoding="utf-8").splitlines()
    for warning in compiled.diagnostics:
        assert warning.span is not None
        near = lines[max(0, warning.span.line - 5) : warning.span.line]
        assert any("#" in line for line in near), warning.message


@pytest.mark.parametrize("text", [EVERYTHING, *RECIPE_TEXTS.values()])
def test_every_leaf_has_an_origin_and_no_origin_is_without_leaf(text: str) -> None:
    plan = planned(text, "policy.lora_rank=16")
    expected = (f"expect {one.compared}" for one in plan.expectations)
    assert set(plan.provenance) == {"seed", *stage_leaves(plan), *expected}
    assert all(plan.provenance.values())


def test_values_and_origins() -> None:
    plan = planned(EVERYTHING, "rate=2e-5", "first.steps=7", seed=9)
    values = stage_leaves(plan)
    expected = {
        "stages.first.model.base": ("Qwen/Qwen3.5-4B", "test.rl:4"),
        "stages.first.model.train_mlp": (True, "default of model"),
        "stages.first.model.renderer": ("qwen3_5", "catalogue"),
        "stages.first.model.service": ("tinker", "catalogue"),
        "stages.first.model.context": (65_536, "catalogue"),
        "stages.first.envs.sudoku.weight": (6.0, "test.rl:19"),
        "stages.first.envs.room.weight": (2.0, "test.rl:19"),
        "stages.first.envs.guess.weight": (1.0, "default"),
        "stages.first.envs.sudoku.args.clues": (8, "test.rl:6"),
        "stages.first.envs.sudoku.args.max_turns": (15, "default of the environment"),
        "stages.first.envs.room.args.dim_room": ([7, 7], "test.rl:7"),
        "stages.first.envs.guess.args.max_turns": (
            None,
            "default of the environment",
        ),
        "stages.first.envs.sums.max_turns": (1, "definition of gem"),
        "stages.first.envs.sums.args.size": (50, "test.rl:9"),
        "stages.first.envs.sums.args.seed": (42, "default of the environment"),
        "stages.first.batch.size": (8, "default of groups"),
        "stages.first.advantage.name": ("mine", "test.rl:12"),
        "stages.first.loss.config.clip_low_threshold": (0.8, "default of ppo"),
        "stages.first.loss.config.clip_high_threshold": (1.28, "test.rl:23"),
        "stages.first.optimizer.learning_rate": (1e-5, "test.rl:24, --set rate"),
        "stages.first.optimizer.beta1": (0.9, "default of adam"),
        "stages.first.steps": (7, "--set first.steps"),
        "stages.first.save.ttl_seconds": (43_200, "test.rl:26"),
        "stages.first.on_error.retries": (3, "test.rl:27"),
        "stages.first.on_error.then": ("stop", "test.rl:27"),
        "stages.first.budget.usd": (3.0, "test.rl:28"),
        "stages.second.steps": (10, "test.rl:33"),
        "stages.second.save.every": (None, "default of train"),
        "stages.second.on_error.then": ("drop", "default of train"),
        "stages.second.optimizer.learning_rate": (2e-5, "--set rate"),
    }
    assert {path: (values[path], plan.provenance[path]) for path in expected} == expected
    assert (plan.seed, plan.provenance["seed"]) == (9, "--seed")


def test_a_scheme_is_the_record_that_its_steps_say() -> None:
    scheme = flat(first_train(planned(EVERYTHING))).advantage
    assert (scheme.result.shape, scheme.args) == ("turn", {"gamma": 0.95, "constant": "drop"})
    assert scheme.keep is not None
    assert scheme.steps == (
        Baseline("leave_one_out", "group", "value", "error"),
        Scale("std", "batch", "value", 1, 1e-6, "outside"),
        Clip(-5.0, 5.0),
    )


def test_returns_without_gamma_is_one_return_an_episode() -> None:
    text = recipe("quickstart")
    plan = planned(text, "main.advantage=returns() |> baseline(length_weighted, over = group)")
    scheme = flat(first_train(plan)).advantage
    assert scheme.result.shape == "episode"
    (step,) = scheme.steps
    assert isinstance(step, Baseline)
    assert step.weight == "tokens"
    plan = planned(text, "main.advantage=returns(gamma = 1)")
    assert flat(first_train(plan)).advantage.result.shape == "turn"


def test_one_environment_twice_is_one_with_both_weights() -> None:
    plan = planned(recipe("mixture"), "main.env=guess + 2 * (guess + spell)")
    assert [(env.name, env.weight) for env in flat(first_train(plan)).envs] == [
        ("guess", 3),
        ("spell", 2),
    ]


def test_different_environments_get_different_names() -> None:
    inline = 'gem("rg:chain_sum", seed = {}) |> chat()'
    text = f"main.env=({inline.format(1)}) + ({inline.format(2)})"
    plan = planned(recipe("quickstart"), text)
    assert [env.name for env in flat(first_train(plan)).envs] == ["chain_sum", "chain_sum_2"]


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("learning_rate=1e-4", "optimizer.learning_rate", 1e-4),
        ("main.optimizer.learning_rate=1e-4", "optimizer.learning_rate", 1e-4),
        ("main.optimizer.beta1=0.5", "optimizer.beta1", 0.5),
        ("main.steps = 10", "steps", 10),
        ("main.batch=groups(4, group_size = 2)", "batch.size", 2),
        ("main.batch.of=2", "batch.size", 2),
        ("policy.lora_rank=16", "model.lora_rank", 16),
        ("main.budget=$5", "budget.usd", 5.0),
        ("guess.max_turns=3", "envs.guess.max_turns", 3),
        ("main.advantage.scale=none", "advantage.args.scale", "none"),
    ],
)
def test_an_override_reaches_its_value(override: str, path: str, value: object) -> None:
    plan = planned(recipe("quickstart"), override)
    full = f"stages.main.{path}"
    assert stage_leaves(plan)[full] == value
    if "advantage" not in path:
        assert plan.provenance[full] == f"--set {override.partition('=')[0].strip()}"


def test_overrides_come_as_a_mapping_too_and_the_last_wins() -> None:
    source = Source("test.rl", recipe("quickstart"))
    plan = compile_source(source, {"main.steps": "3"}).plan
    assert plan is not None
    assert first_train(plan).steps == 3
    assert first_train(planned(recipe("quickstart"), "main.steps=3", "main.steps=4")).steps == 4


def test_an_error_in_an_override_points_at_the_command_line() -> None:
    source = Source("test.rl", recipe("quickstart"))
    for override in ("main.steps=0", "main.steps=ten", "main.steps=", "main.steps=3 4", "main.x=1"):
        found = compile_source(source, [override]).diagnostics
        assert len(found) == 1
        assert found[0].span is not None
        assert found[0].span.source.name == f"--set {override.partition('=')[0]}"


def test_a_malformed_part_hides_nothing_and_invents_nothing() -> None:
    text = (
        recipe("quickstart").replace("steps     = 50", "steps     = *").replace('"tiny"', '"tinny"')
    )
    found = compile_source(Source("test.rl", text)).diagnostics
    assert sorted(item.code for item in found) == ["RL0010", "RL0107"]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n\n"])
def test_a_recipe_without_declarations_has_no_stage(text: str) -> None:
    compiled = compile_source(Source("test.rl", text))
    assert [item.code for item in compiled.diagnostics] == ["RL0301"]
    assert compiled.plan is None


def test_a_model_may_be_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    plan = planned(
        recipe("quickstart"), f'policy.base="{folder}"', 'policy.renderer="qwen3_instruct"'
    )
    model = plan.stages[0].model
    assert (model.base, model.service, model.context) == (str(folder), "local", None)
    source = Source("test.rl", recipe("quickstart"))
    found = compile_source(source, [f'policy.base="{folder}"']).diagnostics
    assert [item.code for item in found] == ["RL0302"]
