"""What the reward of a rollout is made of, on its way from the environment to the advantages."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from rlc.algo.advantages import compute_advantages
from rlc.plan.environments import RewardPlan
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.rollouts.credit import credited_components
from rlc.runtime.stages.computation import labelled_episodes

SUM = RewardPlan("sum", None, None, None)


def turn(reward: float | None, **components: tuple[float, float]) -> Turn:
    return Turn([1], [2], [0.0], "", "", reward, "stop", components=components)


TURNS = [
    turn(1.0, right=(1.0, 1.0), brief=(0.5, 0.0), seen=(0.0, 7.0)),
    turn(None),
    turn(2.5, right=(1.0, 2.0), brief=(0.5, 1.0)),
]


@pytest.mark.parametrize(
    ("reduce", "right", "brief"),
    [
        ("sum", (0, 0, 3), (0, 0, 1)),
        ("mean", (0, 0, 1.5), (0, 0, 0.5)),
        ("last", (0, 0, 2), (0, 0, 1)),
        ("turns", (1, 0, 2), (0, 0, 1)),
    ],
)
def test_each_component_is_reduced_as_the_reward(
    reduce: str, right: tuple[float, ...], brief: tuple[float, ...]
) -> None:
    """What weighs nothing is no component."""
    plan = evolve(SUM, reduce=reduce)  # type: ignore[arg-type]
    expected = {"right": (1.0, right), "brief": (0.5, brief)}
    assert credited_components(plan, TURNS) == expected


@pytest.mark.parametrize("change", [{"low": 0.0}, {"high": 1.0}, {"nonterminal": -1.0}])
def test_what_is_limited_as_a_whole_has_no_components(change: dict[str, float]) -> None:
    assert credited_components(evolve(SUM, **change), TURNS) == {}  # type: ignore[arg-type]


def test_components_reach_the_advantages() -> None:
    """Two members have the same reward for different reasons, a third was given it whole."""
    from dialect_batches import scheme_of

    def member(number: int, **components: tuple[float, float]) -> Rollout:
        parts = {name: (weight, (value,)) for name, (weight, value) in components.items()}
        return Rollout("env", 0, number, "", (turn(1.0),), "done", (1.0,), components=parts)

    rollouts = [
        member(0, right=(1.0, 1.0), long=(0.01, 0.0)),
        member(1, right=(1.0, 0.0), long=(0.01, 100.0)),
    ]
    scheme = scheme_of(
        "returns() |> baseline(mean, over = group) |> scale(std, over = group) |> weighted_sum()"
    )
    apart = compute_advantages(scheme, labelled_episodes(rollouts))
    half = 0.5**0.5 * 0.99
    np.testing.assert_allclose(apart.advantages_N, [half, -half], rtol=1e-5)
    whole = labelled_episodes([member(0), member(1)])
    assert compute_advantages(scheme, whole).advantages_N.tolist() == [0, 0]
