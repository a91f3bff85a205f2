"""Commands and configurations of published guides become recipes that check and compile."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import check_golden
from import_cases import (
    COMMANDS,
    OPENREWARD_CONFIG,
    OPENREWARD_RESUMED,
    RLLM_YAML,
    SOLVER_JUDGE,
)

from rlc.compile.recipe import compile_source
from rlc.imports.convert import convert, job_of_command, job_of_text, with_overrides
from rlc.lang.formatter import format_text
from rlc.lang.source import Source
from rlc.lang.syntax import parse

GOLDEN = Path(__file__).parent / "cases"
COUNTDOWN = "problems(countdown, grader = countdown)"


def seeds() -> dict[str, str]:
    """The recipe of each seed by name."""
    found = {name: convert(job_of_text(text)) for name, text in COMMANDS.items()}
    found["openreward"] = convert(job_of_text(OPENREWARD_CONFIG))
    found["openreward_resumed"] = convert(job_of_text(OPENREWARD_RESUMED))
    words = ["batch_size=64", "learning_rate=2e-5", "loss_fn=importance_sampling"]
    overridden = with_overrides(job_of_text(OPENREWARD_CONFIG), words)
    found["openreward_overridden"] = convert(overridden)
    found["rllm_yaml"] = convert(job_of_text(RLLM_YAML), env=COUNTDOWN)
    return found


SEEDS = seeds()


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_the_recipe_of_a_seed(name: str) -> None:
    check_golden(GOLDEN / f"{name}.rl", SEEDS[name])


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_it_compiles_and_is_laid_out_already(name: str) -> None:
    source = Source(f"{name}.rl", SEEDS[name])
    compiled = compile_source(source)
    assert not compiled.diagnostics.has_errors
    assert compiled.plan is not None
    assert format_text(source, parse(source)[0]) == SEEDS[name]
    assert max(map(len, SEEDS[name].splitlines())) <= 100


# What a comment of the recipe says where `rlc check` warns.
EXPLAINED = {
    "RL0409": "another distribution",
    "RL0413": "the clip never acts",
    "RL0414": "without effect on a single turn",
    "RL0415": "a sequence of its own",
    "RL0446": "more episodes than the training",
}


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_every_warning_is_explained_in_the_recipe(name: str) -> None:
    comments = " ".join(
        line.partition("#")[2].strip() for line in SEEDS[name].splitlines() if "#" in line
    )
    for warning in compile_source(Source(f"{name}.rl", SEEDS[name])).diagnostics:
        assert EXPLAINED[warning.code] in comments


def test_a_command_and_its_text_give_the_same_recipe() -> None:
    words = ["python", "-m", SOLVER_JUDGE, "model.name=Qwen/Qwen3-8B", "trainer.logger=[console]"]
    text = f"python -m {SOLVER_JUDGE} \\\n  model.name=Qwen/Qwen3-8B trainer.logger=['console']\n"
    assert convert(job_of_command(words)) == convert(job_of_text(text))
