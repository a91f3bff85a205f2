"""The advantages that scripts compute are those of the plan."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from dialect_batches import Batch, draw_batch, episodes_of, scheme_of

from rlc.algo import episode_statistics
from rlc.algo.advantages import compute_advantages
from rlc.algo.columns import advantage_functions, unwritten
from rlc.catalog.index import builtins_of

SCHEMES = [
    *(one.usage() for one in builtins_of("advantage") if one.usage() == f"{one.name}()"),
    "grpo(singleton = drop, constant = drop)",
    "returns() |> baseline(mean, over = env, singleton = raw) |> scale(std, over = group)",
    "returns() |> baseline(mean, over = group, singleton = raw) |> scale(std, over = batch)",
    "returns(gamma = 0.5) |> baseline(mean, over = group, weight = tokens, singleton = raw)"
    " |> scale(std, over = group, weight = tokens, eps_place = inside) |> clip(-1, 1)",
]


def written(text: str) -> dict[str, Any] | None:
    """The functions of a script; None if it refuses the scheme."""
    scheme = scheme_of(text)
    if any(unwritten(scheme)):
        return None
    space: dict[str, Any] = {**vars(episode_statistics), "Episode": Any, "np": np}
    exec("\n".join(advantage_functions(scheme)), space)
    return space


def played(batch: Batch) -> list[SimpleNamespace]:
    """The batch as the script's episodes."""

    def turns(rollout: Any) -> list[SimpleNamespace]:
        rows = zip(rollout.rewards, rollout.tokens, strict=True)
        return [SimpleNamespace(reward=reward, tokens=[0] * count) for reward, count in rows]

    return [
        SimpleNamespace(
            env=rollout.env,
            task=rollout.group,
            turns=turns(rollout),
            reward=sum(reversed(rollout.rewards)),
        )
        for rollout in batch
    ]


def test_scripts_express_most_schemes() -> None:
    refused = [text for text in SCHEMES if written(text) is None]
    assert sorted(refused) == ["gdpo()", "trl.gdpo()", "verl.gdpo()"]


@pytest.mark.parametrize("text", SCHEMES)
def test_a_script_computes_the_advantages_of_the_plan(text: str) -> None:
    """On groups of any size, of one and of equals; a script plays no roles."""
    space = written(text)
    if space is None:
        return
    draw = random.Random(text)
    for _ in range(12):
        batch = [evolve(rollout, role=0) for rollout in draw_batch(draw)]
        # A script numbers the tasks of each environment.
        batch = [evolve(rollout, group=100 * rollout.env + rollout.group) for rollout in batch]
        episodes = played(batch)
        space["AVERAGES"].clear()  # of the steps before
        keep = space["kept"](episodes) if "kept" in space else np.ones(len(episodes))
        left = [one for one, chosen in zip(episodes, keep, strict=True) if chosen]
        if "required" in space and not space["required"](left).all():
            continue
        found = compute_advantages(scheme_of(text), episodes_of(batch))
        np.testing.assert_array_equal(keep != 0, found.kept_R)
        rows = [row for row, kept in zip(found.by_rollout(), found.kept_R, strict=True) if kept]
        for mine, theirs in zip(space["advantages"](left) if left else [], rows, strict=True):
            wide = np.resize(mine, len(theirs))  # of the episode, or of its turns
            np.testing.assert_allclose(wide, theirs, rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(wide == 0, theirs == 0)
