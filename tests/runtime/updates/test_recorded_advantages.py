"""A recorded step, from rewards through labels to advantages, against what others compute of it.

``tests/algo/data/make_recorded_advantages.py`` made the expected values, mostly with the libraries
whose schemes these are.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from paths import ROOT
from run_support import tiny, train
from stage_parts import flat

from rlc.algo.advantages import compute_advantages
from rlc.plan.stages import Training
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.rollouts.credit import episode_credit
from rlc.runtime.stages.computation import labelled_episodes, trainable_rollouts

DATA = ROOT / "tests" / "algo" / "data"
RECORDED = json.loads((DATA / "recorded_rollouts.json").read_text(encoding="utf-8"))
EXPECTED = json.loads((DATA / "recorded_advantages.json").read_text(encoding="utf-8"))
ENVS = (
    'env duel = gem("rg:spell_backward") |> chat() |> solver_judge() |> rollouts(group_size = 3)\n',
    "guess + duel",
)


def plan(scheme: str) -> Training:
    declared, mixture = ENVS
    (stage,) = tiny(declared, train(env=mixture, advantage=scheme)).stages
    assert isinstance(stage, Training)
    return stage


def rollout(stage: Training, record: dict[str, Any]) -> Rollout:
    turns = tuple(
        Turn([1], [2] * count, [-0.5] * count, "", "", reward, "stop")
        for reward, count in zip(record["rewards"], record["tokens"], strict=True)
    )
    (env,) = (env for env in flat(stage).envs if env.name == record["env"])
    return Rollout(
        env=env.name,
        task=record["task"],
        member=record["member"],
        digest="",
        turns=turns,
        ended=record["ended"],
        credit=episode_credit(env.reward, turns, record["ended"] == "done"),
        role=record["role"],
    )


@pytest.mark.parametrize("expected", EXPECTED, ids=[case["scheme"] for case in EXPECTED])
def test_a_recorded_step_has_the_advantages_of_the_reference(expected: dict[str, Any]) -> None:
    """In the order in which the rollouts came back, and in any other."""
    stage = plan(expected["scheme"])
    order = list(range(len(RECORDED)))
    for _ in range(2):
        rollouts = trainable_rollouts(
            [rollout(stage, RECORDED[at]) for at in order], flat(stage).envs
        )
        found = compute_advantages(flat(stage).advantage, labelled_episodes(rollouts))
        for at, values_T, kept in zip(order, found.by_rollout(), found.kept_R, strict=True):
            wanted = expected["values"][at]
            assert kept == (wanted is not None)
            if kept:
                turns = wanted if isinstance(wanted, list) else [wanted] * len(values_T)
                # Some of the references compute in float32.
                assert values_T.tolist() == pytest.approx(turns, abs=2e-7)
        Random(7).shuffle(order)
