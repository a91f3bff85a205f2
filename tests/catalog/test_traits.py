"""What the catalogue says of losses and aggregations is what their definitions do."""

from __future__ import annotations

import numpy as np
import pytest

from rlc.algo import (
    LOSSES,
    RATIO_MASK,
    SAMPLED,
    SHARED_BY,
    aggregate_weights,
    builtin_loss_and_grad,
    degree,
)
from rlc.catalog.index import (
    aggregate_traits,
    find_builtin,
    names_of,
    service_loss_traits,
    service_settings,
)

LOGPROBS_T = np.array([-0.1, -1.2, -2.5, -0.7])
SAMPLER_T = np.array([-0.9, -1.2, -0.4, -1.5])  # ratios above, at and below 1
ADVANTAGES_T = np.array([1.0, -0.5, -0.8, 0.3])
LENGTH = 7


def of_loss(name: str, advantages_T: np.ndarray = ADVANTAGES_T) -> tuple[float, np.ndarray]:
    """Value and gradient of a loss, with the defaults of the recipe's parameters, or 0.1."""
    traits, builtin = service_loss_traits(name), find_builtin("loss", name)
    assert builtin is not None
    config = {
        traits.config[param.name]: param.default if isinstance(param.default, float) else 0.1
        for param in builtin.params
    }
    inputs = {"weights": advantages_T}
    if traits.sampler_logprobs:
        inputs = {"logprobs": SAMPLER_T, "advantages": advantages_T}
    return builtin_loss_and_grad(name, config, LOGPROBS_T, inputs)


@pytest.mark.parametrize("name", names_of("loss"))
def test_a_loss_has_the_traits_that_its_formula_shows(name: str) -> None:
    traits, loss = service_loss_traits(name), LOSSES[name]
    operations = {node.op for node in loss.program.nodes}
    assert traits.sampler_logprobs == ("logprobs" in loss.reads.values())
    assert traits.per_sequence == ("mean" in operations) == (loss.marks == RATIO_MASK)
    assert traits.recorded == (loss.marks == SAMPLED)
    assert (traits.pull is None) == (degree(loss.program).of == 1)


def test_a_service_has_the_defaults_of_recipes_but_for_the_strength_of_a_pull() -> None:
    assert service_settings("ppo") == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    assert service_settings("gspo") == {
        "clip_low_threshold": 0.9997,
        "clip_high_threshold": 1.0004,
    }
    assert service_settings("dro") == {"beta": None}
    assert service_settings("cross_entropy") == {}


@pytest.mark.parametrize("name", names_of("loss"))
def test_a_loss_without_a_pull_scales_with_its_advantages(name: str) -> None:
    once, thrice = of_loss(name)[0], of_loss(name, 3 * ADVANTAGES_T)[0]
    assert (abs(thrice - 3 * once) < 1e-12) == (service_loss_traits(name).pull is None)
    assert service_loss_traits(name).pull in (None, *service_loss_traits(name).config.values())


@pytest.mark.parametrize("name", names_of("loss"))
def test_a_clip_takes_the_gradient_or_bounds_the_weight(name: str) -> None:
    builtin, (_, grad_T) = find_builtin("loss", name), of_loss(name)
    assert builtin is not None
    assert (service_loss_traits(name).clip is not None) == (
        "clip_high" in {p.name for p in builtin.params}
    )
    assert bool((grad_T == 0).any()) == (service_loss_traits(name).clip == "gradient")


@pytest.mark.parametrize("kind", SHARED_BY)
def test_an_aggregation_weighs_as_its_traits_say(kind: str) -> None:
    traits, sizes = aggregate_traits(kind), [1, 2, 4]
    weight_D = aggregate_weights(kind, sizes, [0, 0, 1], LENGTH)
    assert (traits.over is None) == bool((weight_D == 1).all())
    assert traits.uniform == (len(set(weight_D.tolist())) == 1)
    mean = float(np.average(weight_D, weights=sizes))
    assert traits.token_weight(3, 7, LENGTH) == pytest.approx(mean)


def test_traits_are_asked_of_what_has_them() -> None:
    for wrong in ("grpo", "nosuch"):
        with pytest.raises(KeyError):
            service_loss_traits(wrong)
        with pytest.raises(KeyError):
            aggregate_traits(wrong)
