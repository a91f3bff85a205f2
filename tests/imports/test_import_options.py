"""No option is dropped: each changes the recipe, or is named in it with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from import_cases import OPENREWARD_CONFIG

from rlc.imports import gem, openreward, rllm
from rlc.imports.convert import convert, job_of_command, job_of_text, with_overrides
from rlc.imports.settings import OVERRULED, Option, Settings

SCRIPT = "examples.solver_judge.train"

# Values that differ from the default where one more or `true` would not do.
VALUES: dict[str, Any] = {
    "env_id": "rg:chain_sum",
    "env_wrappers": "episode_tracking",
    "template": "no",
    "prompt_type": "no",
    "renderer_name": "qwen3_instruct",
    "rollout_engine.renderer_name": "qwen3_instruct",
    "env_kwargs_json": '{"size": 10}',
    "algorithm.adv_estimator": "reinforce",
    "algorithm.grouping_level": "step",
    "algorithm.loss_fn": "cispo",
    "algorithm.loss_agg_mode": "token-mean",
    "algorithm.lr_schedule": "linear",
    "algorithm.warmup_steps_ratio": "0.5",
    "training.lr_schedule": "linear",
    "training.warmup_steps_ratio": "0.5",
    "training.max_length": "1000",
    "rejection_sample.min_trajs_per_group": "1",
    "trainer.logger": "[tensorboard]",
    "model_name": "Qwen/Qwen3-8B",
    "model.name": "Qwen/Qwen3.5-4B",
    "workflow.timeout": "60",
    "workflow.workflow_args.timeout": "60",
    "gamma": "0.5",
    "loss_fn": "dro",
    "advantage_calculation": "direct",
    "reward_reduction": "max",
    "top_p": "0.5",
    "temperature": "0.5",
    "sampling.top_p": "0.5",
    "rollout.train.top_p": "0.5",
    "async_training.staleness_threshold": "2",
    "weight_decay": "0.1",
}
# Options that mean something only beside another.
BESIDE = {
    "wandb_name": ["wandb_project=p"],
    "trainer.project_name": ["trainer.logger=[wandb]"],
    "trainer.experiment_name": ["trainer.logger=[wandb]"],
    "async_training.staleness_threshold": ["async_training.enable=true"],
    "async_training.enable": ["async_training.staleness_threshold=1"],
}
# Refused outright: there are no words for what they do.
REFUSED = {
    "compact_filtering.enable",
    "rejection_sample.enable",
    "mask_truncated_samples",
    "algorithm.use_precomputed_advantage",
    "algorithm.env_loss_coef",
    "algorithm.rollout_correction.tis_mode",
    "trainer.val_only",
}


def another(option: Option) -> str:
    """A value of the option that is not its default."""
    if option.name in VALUES:
        return str(VALUES[option.name])
    if option.type == "bool":
        return str(not option.default).lower()
    if option.type in ("int", "float"):
        step = 1 if option.type == "int" else 0.25
        return str(abs(option.default or 0) + step)
    return "other.parquet" if "file" in option.name else "other"


def body(recipe: str) -> str:
    """The recipe without its comments."""
    return "\n".join(line.partition(" #")[0] for line in recipe.splitlines() if line[:1] != "#")


TRAINERS = [
    pytest.param("gem", gem.OPTIONS, ["tinker_train.py"], id="gem"),
    pytest.param(
        "gem-cookbook",
        gem.COOKBOOK_OPTIONS,
        ["tinker_cookbook_train.py", "env_id=rg:simple_equations"],
        id="gem-cookbook",
    ),
    pytest.param("rllm", rllm.LEGACY, ["-m", SCRIPT], id="rllm-legacy"),
    pytest.param("rllm", rllm.UNIFIED, ["-m", SCRIPT, "rllm/backend=tinker"], id="rllm-unified"),
]


@pytest.mark.parametrize(("source", "options", "command"), TRAINERS)
def test_every_option_has_an_effect_or_a_reason(
    source: str, options: Mapping[str, Option], command: list[str]
) -> None:
    for option in options.values():
        if option.name in REFUSED or option.name.endswith("_files"):
            continue  # tests of their own
        name = option.name.replace("*", "anything")
        beside = [*command, *BESIDE.get(name, [])]
        before = body(convert(job_of_command(beside), source))
        beside = [word for word in beside if not word.startswith(f"{name}=")]
        recipe = convert(job_of_command([*beside, f"{name}={another(option)}"]), source)
        noted = f"- {name} = " in recipe
        assert noted or body(recipe) != before, name
        assert OVERRULED not in recipe, name


def test_files_of_rllm_are_its_tasks() -> None:
    command = ["-m", "my.train", "data.train_files=train.parquet", "data.val_files=val.parquet"]
    recipe = convert(job_of_command(command))
    assert 'env tasks = problems("train.parquet")' in recipe
    assert 'env test_tasks = problems("val.parquet")' in recipe


@pytest.mark.parametrize("name", sorted(openreward.OPTIONS.keys() | openreward.ENVIRONMENT.keys()))
def test_every_option_of_openreward_has_an_effect_or_a_reason(name: str) -> None:
    if name in ("environments", "splits", "secrets", "loss_fn_config"):
        return
    whole = name in openreward.OPTIONS
    option = (openreward.OPTIONS if whole else openreward.ENVIRONMENT)[name]
    path = name if whole else f"environments.GeneralReasoning/WhoDunIt.{name}"
    value = "3" if name == "max_failing_rollouts" else _openreward_value(option)
    beside = ["environments.GeneralReasoning/WhoDunIt.splits.train.num_samples=320"]
    base = with_overrides(job_of_text(OPENREWARD_CONFIG), beside)
    before = body(convert(base))
    recipe = convert(with_overrides(base, [f"{path}={value}"]))
    noted = f"- {path} = " in recipe
    assert noted or body(recipe) != before
    assert OVERRULED not in recipe


def _openreward_value(option: Option) -> str:
    if option.default is None or option.type in ("int", "float", "bool", "string"):
        numbers = {"int": "7", "float": "0.25", "bool": "true"}
        return str(VALUES.get(option.name, numbers.get(option.type, "other")))
    raise AssertionError(option.name)


def test_mappings_of_openreward() -> None:
    base = job_of_text(OPENREWARD_CONFIG)
    where = "environments.GeneralReasoning/WhoDunIt"
    words = [
        'loss_fn_config={"clip_high_threshold": 1.4}',
        'secrets={"openai_api_key": null, "other_key": "sk-1234"}',
        f"{where}.splits.test.num_samples=5",
        f"{where}.splits.train.num_samples=10",
        f"{where}.splits.test.shuffle=false",
    ]
    recipe = convert(with_overrides(base, words))
    assert "ppo(clip_low = 0.8, clip_high = 1.4)" in recipe
    assert 'secrets = ["OPENAI_API_KEY", "OTHER_KEY"]' in recipe
    assert "sk-1234" not in recipe
    assert "10 * whodunit_train + 5 * whodunit_test" in recipe
    assert "shuffle = false" in recipe


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_expressed_is_refused_or_noted(name: str) -> None:
    value = "0.5" if name.endswith("coef") else "true"
    settings = rllm.read_settings([("rllm.trainer.total_epochs", "1"), (name, value)], True)
    assert isinstance(settings, Settings)
    recipe = rllm.recipe(settings, SCRIPT, None)
    assert name in recipe
