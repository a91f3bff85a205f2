"""The game that rlc plays without GEM has GEM's rules, texts, rewards and draws."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from plan_recipes import planned

from rlc.catalog import is_included
from rlc.catalog.facts import INCLUDED, gem_facts, gem_ids
from rlc.catalog.requirements import requirements
from rlc.chat.turns import EnvError
from rlc.envs.gem.guess import GuessSource

IDS = [name for name in gem_ids() if name.partition("-v")[0] in INCLUDED]
ODD = [f"\\boxed{{{each}}}" for each in ("0", "x", "99", "007", "٣", "9" * 5_000, "-3")]
ODD += ["no box", "\\boxed{1} \\boxed{2}"]
RECIPE = """\
model policy {{ base = "tiny" }}
env guess = gem("game:GuessTheNumber-v0-easy"){}
eval held {{ model = policy  env = guess  tasks = 2  sampling = sample(max_tokens = 16) }}
"""


def played(episode: Any, actions: list[str]) -> list[tuple[object, ...]]:
    """Return all that a model, a run and its files see of an episode."""
    seen = [episode.first]
    for action in actions:
        seen.append(episode.step(action))
        if seen[-1].done:
            break
    return [(o.text, o.reward, o.done, o.truncated, o.metrics) for o in seen]


@pytest.mark.slow  # loads gem
@pytest.mark.parametrize("env_id", IDS)
def test_games_are_those_of_gem(env_id: str) -> None:
    pytest.importorskip("gem.envs")
    from rlc.envs.gem.source import GemSource

    rng = random.Random(0)
    for more in ({}, {"min_number": 3, "max_number": 12, "max_turns": 9}):
        args = {**gem_facts(env_id)["args"], **more}
        ours, theirs = GuessSource(env_id, args), GemSource(env_id, args)
        for seed in range(150):
            guesses = [f"I say \\boxed{{{rng.randint(1, 14)}}}" for _ in range(40)]
            actions = [rng.choice(ODD) if rng.random() < 0.07 else guess for guess in guesses]
            pairs = zip(ours.group(seed, 2), theirs.group(seed, 2), strict=True)
            for own, other in pairs:
                assert played(own, actions) == played(other, actions)


def test_an_episode_goes_to_another_process() -> None:
    source = GuessSource(IDS[0], gem_facts(IDS[0])["args"])
    (episode,) = pickle.loads(pickle.dumps(source)).group(5, 1)
    moves = ["\\boxed{5}", "\\boxed{5}", "\\boxed{1}", "\\boxed{1}"]
    assert played(pickle.loads(pickle.dumps(episode)), moves) == played(episode, moves)


def test_no_number_to_guess() -> None:
    with pytest.raises(EnvError, match=r"`game:.*` cannot be made: empty range"):
        GuessSource(IDS[0], {"min_number": 9, "max_number": 3, "max_turns": 4})


@pytest.mark.parametrize(
    ("wrappers", "included"),
    [
        (" |> chat()", True),
        (" |> track() |> template(qwen3_game)", True),
        (" |> concat() |> template(qwen3_game)", False),
        (" |> python_tool() |> chat()", False),
    ],
)
def test_only_wrappers_of_gem_need_its_package(wrappers: str, included: bool) -> None:
    plan = planned(RECIPE.format(wrappers))
    (env,) = plan.stages[0].environments
    assert is_included(env) is included
    assert ("gem-llm" in {one.name for one in requirements(plan)}) is not included
