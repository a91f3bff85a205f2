"""The advantages that scripts compute are those of the plan."""

from __future__ import annotations

import ast
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from dialect_batches import Batch, draw_batch, episodes_of, plan_with, scheme_of

from rlc.algo.advantages import compute_advantages
from rlc.catalog.index import builtins_of
from rlc.emit.errors import EmitError
from rlc.emit.pieces import advantages as pieces
from rlc.emit.script.program import script

SCHEMES = [
    *(one.usage() for one in builtins_of("advantage") if one.usage() == f"{one.name}()"),
    "returns() |> baseline(mean, over = env, singleton = raw) |> scale(std, over = group)",
    "returns() |> baseline(mean, over = group, singleton = raw) |> scale(std, over = batch)",
    "returns(gamma = 0.5) |> baseline(mean, over = group, weight = tokens, singleton = raw)"
    " |> scale(std, over = group, weight = tokens, eps_place = inside) |> clip(-1, 1)",
]


def scripted(text: str) -> Any:
    """The script's function; None if it refuses the scheme."""
    try:
        made = script(plan_with(text))
    except EmitError:
        return None
    space: dict[str, Any] = {**vars(pieces), "Episode": object}
    for node in ast.parse(made).body:
        if isinstance(node, ast.FunctionDef) and node.name == "advantages":
            exec(ast.unparse(node), space)
    return space["advantages"]


def played(batch: Batch) -> list[SimpleNamespace]:
    """The batch as the script's episodes."""
    return [
        SimpleNamespace(
            env=rollout.env,
            task=rollout.group,
            reward=sum(rollout.rewards),
            turns=[
                SimpleNamespace(reward=reward, tokens=[0] * tokens)
                for reward, tokens in zip(rollout.rewards, rollout.tokens, strict=True)
            ],
        )
        for rollout in batch
    ]


def test_scripts_express_most_schemes() -> None:
    assert sum(scripted(text) is not None for text in SCHEMES) > 25


@pytest.mark.parametrize("text", SCHEMES)
def test_a_script_computes_the_advantages_of_the_plan(text: str) -> None:
    """On groups of any size, of one and of equals; a script plays no roles."""
    function = scripted(text)
    if function is None:
        return
    draw = random.Random(text)
    for _ in range(12):
        batch = [evolve(rollout, role=0) for rollout in draw_batch(draw)]
        expected = compute_advantages(scheme_of(text), episodes_of(batch)).by_rollout()
        for mine, theirs in zip(function(played(batch)), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
