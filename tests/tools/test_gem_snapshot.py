"""The snapshot says of GEM what the installed GEM does."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from golden import check_file
from stage_parts import flat

pytest.importorskip("gem.envs")

from rlc.catalog.facts import gem_facts, gem_ids, is_broken
from rlc.catalog.facts import snapshot as known
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.stages import Training
from tools import gem_snapshot as snapshot

MEASURED = ("game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy", "rg:spell_backward")


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Until Python 3.11.8, `ast.parse` could fail if a collection let another thread parse."""
    gc.disable()
    yield
    gc.enable()


def test_ids_arguments_and_signatures_are_those_of_the_library() -> None:
    stored = known("gem")
    installed = snapshot.registry()
    without_lengths = {
        env_id: {key: value for key, value in record.items() if key not in ("chars", "tiny")}
        for env_id, record in stored["environments"].items()
    }
    assert {**stored, "environments": without_lengths} == installed
    assert len(gem_ids()) == 172


@pytest.mark.parametrize("env_id", MEASURED)
def test_prompt_lengths_are_those_of_the_environment(env_id: str) -> None:
    shown = snapshot.probe(env_id)
    assert shown is not None
    assert gem_facts(env_id)["chars"] == snapshot.lengths(shown, len)
    assert gem_facts(env_id)["tiny"] == snapshot.lengths(shown, snapshot.tiny_tokens)


def test_an_environment_that_fails_has_no_length() -> None:
    assert snapshot.probe("rg:composite") is None
    assert gem_facts("rg:composite")["chars"] is None


def test_the_file_is_as_the_script_writes_it() -> None:
    check_file(snapshot.PATH, snapshot.render(known("gem")), "python -m tools.gem_snapshot")


RECIPE = """
model policy { base = "tiny" }
env   task   = gem("ENV") |> template(no)
train main {
  model = policy  env = task  batch = groups(2)  sampling = sample(8)  advantage = grpo()
  loss  = ppo()   optimizer = adam(1e-3)  steps = 1
}
"""
PLAYABLE = [
    env_id
    for env_id in gem_ids()
    if not is_broken(env_id)
    and not gem_facts(env_id)["needs"]
    and not env_id.endswith("-hard")
    and (env_id.startswith("game:") or env_id in ("rg:chain_sum", "rg:spell_backward"))
]


@pytest.mark.parametrize("env_id", PLAYABLE)
def test_a_planned_environment_can_be_made(env_id: str) -> None:
    import gem

    plan = compile_source(Source("test.rl", RECIPE.replace("ENV", env_id))).plan
    assert plan is not None
    (stage,) = plan.stages
    assert isinstance(stage, Training)
    (env,) = flat(stage).envs
    made = gem.make(env.id, **env.args)
    assert made.reset(seed=1)[0]
