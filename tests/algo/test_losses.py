"""Loss formulas: gradients against finite differences, identities, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import LOSSES, AlgorithmError, builtin_loss_and_grad

CONFIG: dict[str, dict[str, float]] = {
    "cross_entropy": {},
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.7, "clip_high_threshold": 1.28},
    "cispo": {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0},
    "dro": {"beta": 0.05},
    "stable_reinforce": {"kl_coeff": 0.2},
    "gspo": {"clip_low_threshold": 0.7, "clip_high_threshold": 1.28},
}
DEFAULT: dict[str, dict[str, float]] = {  # of Tinker
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0},
}
logprobs = st.floats(-6.0, -0.01)
Data = tuple[np.ndarray, dict[str, np.ndarray]]


@st.composite
def policy_data(draw: st.DrawFn) -> Data:
    """Learner logprobs near the sampler's, so that ratios fall on both sides of the clips."""
    size = draw(st.integers(1, 8))
    sampler = np.array(draw(st.lists(logprobs, min_size=size, max_size=size)))
    drift = draw(st.lists(st.floats(-1.0, 1.0), min_size=size, max_size=size))
    advantages = draw(
        st.lists(st.floats(-3.0, 3.0, allow_subnormal=False), min_size=size, max_size=size)
    )
    return sampler + drift, {"logprobs": sampler, "advantages": np.array(advantages)}


def inputs_for(name: str, data: Data) -> dict[str, np.ndarray]:
    return {"weights": data[1]["advantages"]} if name == "cross_entropy" else data[1]


def ratio(data: Data) -> np.ndarray:
    return np.asarray(np.exp(data[0] - data[1]["logprobs"]))


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"gspo"}))  # its ratio is the sequence's
@given(data=policy_data())
def test_the_gradient_is_the_slope_of_the_loss(name: str, data: Data) -> None:
    logprobs_T, inputs = data[0], inputs_for(name, data)
    _, grad_T = builtin_loss_and_grad(name, CONFIG[name], logprobs_T, inputs)
    bounds = [v for k, v in CONFIG[name].items() if k.startswith("clip")]
    step = 1e-5
    for t in range(len(logprobs_T)):
        if any(
            abs(np.log(bound) - (data[0] - data[1]["logprobs"])[t]) < 2 * step for bound in bounds
        ):
            continue  # no slope at the corner
        slope = _slope(name, logprobs_T, inputs, t, step)
        assert grad_T[t] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def _slope(
    name: str,
    logprobs_T: np.ndarray,
    inputs: Mapping[str, np.ndarray],
    t: int,
    step: float,
    config: Mapping[str, float] | None = None,
) -> float:
    """Central difference; cispo's coefficient is a constant, so it is held at the centre."""
    if name == "cispo":
        ratio_T = np.exp(logprobs_T - inputs["logprobs"])
        weights = np.clip(ratio_T, 0.5, 2.0) * inputs["advantages"]
        name, inputs = "cross_entropy", {"weights": weights}
    sides = []
    for sign in (1, -1):
        moved = logprobs_T.copy()
        moved[t] += sign * step
        sides.append(builtin_loss_and_grad(name, config or CONFIG[name], moved, inputs)[0])
    return (sides[0] - sides[1]) / (2 * step)


@pytest.mark.parametrize(
    ("name", "config", "loss", "grad"),
    [
        ("importance_sampling", {}, -(2 * 1.0 + 0.5 * -2.0), [-2.0, 1.0]),
        ("ppo", DEFAULT["ppo"], -(1.2 * 1.0 + 0.8 * -2.0), [0.0, 0.0]),
        (
            "cispo",
            DEFAULT["cispo"],
            -(2 * 1.0 * np.log(0.5) + 0.5 * -2.0 * np.log(0.25)),
            [-2.0, 1.0],
        ),
        (
            "dro",
            {"beta": 0.1},
            -(np.log(0.5) - 2 * np.log(0.25) - 0.1 * np.log(2) ** 2),
            [-1 + 0.1 * np.log(2), 2 - 0.1 * np.log(2)],
        ),
        (
            "stable_reinforce",
            {"kl_coeff": 0.4},
            -(np.log(0.5) - 2 * np.log(0.25) - 0.4 * np.log(2) ** 2),
            [-1 + 0.4 * np.log(2), 2 - 0.4 * np.log(2)],
        ),
    ],
)
def test_a_worked_example(
    name: str, config: dict[str, float], loss: float, grad: list[float]
) -> None:
    """Ratios 2 and 1/2, advantages 1 and -2, the default thresholds."""
    inputs = {"logprobs": np.log([0.25, 0.5]), "advantages": np.array([1.0, -2.0])}
    value, grad_T = builtin_loss_and_grad(name, config, np.log([0.5, 0.25]), inputs)
    assert value == pytest.approx(loss)
    np.testing.assert_allclose(grad_T, grad, atol=1e-12)


def test_cross_entropy_is_the_weighted_negative_logprob() -> None:
    inputs = {"weights": np.array([0.0, 1.0]), "target_tokens": np.array([5, 6])}
    value, grad_T = builtin_loss_and_grad("cross_entropy", None, [-1.0, -2.0], inputs)
    assert value == 2.0
    assert grad_T.tolist() == [0.0, -1.0]


@given(policy_data())
def test_on_policy_every_policy_loss_has_the_plain_gradient(data: Data) -> None:
    sampler, advantages = data[1]["logprobs"], data[1]["advantages"]
    for name in ("importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce"):
        _, grad_T = builtin_loss_and_grad(name, CONFIG[name], sampler, data[1])
        np.testing.assert_array_equal(grad_T, -advantages)


@given(policy_data())
def test_ppo_is_importance_sampling_inside_the_clip(data: Data) -> None:
    wide = {"clip_low_threshold": 0.0, "clip_high_threshold": 10.0}
    free = builtin_loss_and_grad("importance_sampling", {}, *data)
    clipped = builtin_loss_and_grad("ppo", wide, *data)
    assert clipped[0] == free[0]
    np.testing.assert_array_equal(clipped[1], free[1])


@given(policy_data())
def test_ppo_is_the_pessimistic_bound(data: Data) -> None:
    ppo, _ = builtin_loss_and_grad("ppo", CONFIG["ppo"], *data)
    free, _ = builtin_loss_and_grad("importance_sampling", {}, *data)
    assert ppo >= free - 1e-12
    _, grad_T = builtin_loss_and_grad("ppo", CONFIG["ppo"], *data)
    sign = np.sign(data[1]["advantages"])
    pushed_out = ((ratio(data) > 1.28) & (sign > 0)) | ((ratio(data) < 0.7) & (sign < 0))
    assert not grad_T[pushed_out].any()


@pytest.mark.parametrize("name", ["importance_sampling", "ppo", "cispo", "gspo"])
@given(data=policy_data(), factor=st.floats(1e-4, 1e4))
def test_a_positive_factor_on_advantages_is_a_factor_on_the_loss(
    name: str, data: Data, factor: float
) -> None:
    """What lets any averaging over tokens or rollouts be folded into the advantages."""
    scaled = {**data[1], "advantages": factor * data[1]["advantages"]}
    loss, grad_T = builtin_loss_and_grad(name, CONFIG[name], *data)
    loss_scaled, grad_scaled_T = builtin_loss_and_grad(name, CONFIG[name], data[0], scaled)
    assert loss_scaled == pytest.approx(factor * loss, rel=1e-9, abs=1e-9 * factor)
    np.testing.assert_allclose(grad_scaled_T, factor * grad_T, rtol=1e-12, atol=1e-300)


@given(policy_data(), st.floats(1e-3, 1e3))
def test_dro_scales_with_advantages_and_beta_together(data: Data, factor: float) -> None:
    scaled = {**data[1], "advantages": factor * data[1]["advantages"]}
    loss, grad_T = builtin_loss_and_grad("dro", {"beta": 0.05}, *data)
    both, grad_both_T = builtin_loss_and_grad("dro", {"beta": factor * 0.05}, data[0], scaled)
    assert both == pytest.approx(factor * loss, rel=1e-9, abs=1e-9 * factor)
    np.testing.assert_allclose(grad_both_T, factor * grad_T, rtol=1e-9, atol=1e-12 * factor)


def test_dro_does_not_scale_with_advantages_alone() -> None:
    inputs = {"logprobs": [-2.0], "advantages": [1.0]}
    _, grad_T = builtin_loss_and_grad("dro", {"beta": 0.5}, [-1.0], inputs)
    _, doubled_T = builtin_loss_and_grad(
        "dro", {"beta": 0.5}, [-1.0], {**inputs, "advantages": [2.0]}
    )
    assert doubled_T[0] != pytest.approx(2 * grad_T[0])


ONE = {"logprobs": [-1.0], "advantages": [1.0]}
TWO = {"logprobs": [-1.0, -1.0], "advantages": [1.0, 3.0]}
WIDE = {"clip_low_threshold": 0.0, "clip_high_threshold": 1e3}
NARROW = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}


def test_gspo_on_a_worked_example() -> None:
    """Ratios 2 and 8 of the marked tokens: 4 for the sequence, which the clip holds at 1.1."""
    inputs = {
        "logprobs": np.log([0.25, 0.1, 0.5]),
        "advantages": np.array([1.0, 1.0, 0.0]),
        "sequence_ratio_mask": np.array([1.0, 1.0, 0.0]),
    }
    logprobs_T = np.log([0.5, 0.8, 0.9])
    loss, grad_T = builtin_loss_and_grad("gspo", WIDE, logprobs_T, inputs)
    assert loss == pytest.approx(-8.0)
    np.testing.assert_allclose(grad_T, [-4.0, -4.0, 0.0])
    held, grad_T = builtin_loss_and_grad("gspo", NARROW, logprobs_T, inputs)
    assert held == pytest.approx(-2.2)
    assert not grad_T.any()
    inputs["advantages"] = -inputs["advantages"]
    away, grad_T = builtin_loss_and_grad("gspo", NARROW, logprobs_T, inputs)
    assert away == pytest.approx(8.0)
    np.testing.assert_allclose(grad_T, [4.0, 4.0, 0.0])


def test_the_mask_of_gspo_marks_what_the_ratio_is_of_and_not_what_is_trained() -> None:
    loss, grad_T = builtin_loss_and_grad(
        "gspo", WIDE, [-2.0], {**ONE, "sequence_ratio_mask": [0.0]}
    )
    assert loss == -1.0  # of no token: 1
    assert grad_T.tolist() == [-1.0]
    inputs = {**TWO, "sequence_ratio_mask": [0.0, 1.0]}
    loss, grad_T = builtin_loss_and_grad("gspo", WIDE, [-9.0, -1.0 + np.log(2)], inputs)
    assert loss == pytest.approx(-2.0 * (1 + 3))
    np.testing.assert_allclose(grad_T, [-2.0, -6.0])


@given(policy_data(), st.floats(-3, 3))
def test_gspo_has_the_slope_of_the_sequence_ratio_under_one_advantage(
    data: Data, advantage: float
) -> None:
    logprobs_T, inputs = data[0], {**data[1], "advantages": np.full(len(data[0]), advantage)}
    _, grad_T = builtin_loss_and_grad("gspo", WIDE, logprobs_T, inputs)
    for t in range(len(logprobs_T)):
        slope = _slope("gspo", logprobs_T, inputs, t, 1e-5, WIDE)
        assert grad_T[t] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@given(policy_data())
def test_thresholds_may_be_given_token_by_token(data: Data) -> None:
    size = len(data[0])
    columns = {"clip_low_threshold": np.full(size, 0.7), "clip_high_threshold": np.full(size, 1.28)}
    for name in ("ppo", "cispo"):
        by_token = builtin_loss_and_grad(name, {}, data[0], {**data[1], **columns})
        by_config = builtin_loss_and_grad(name, CONFIG["ppo"], *data)
        assert by_token[0] == by_config[0]
        np.testing.assert_array_equal(by_token[1], by_config[1])


@pytest.mark.parametrize(
    ("name", "config", "inputs", "message"),
    [
        ("pppo", {}, ONE, "unknown loss 'pppo'; known are cispo, cross_entropy"),
        ("ppo", {"clip_low": 0.8}, ONE, "ppo has no setting 'clip_low'; it knows clip_high"),
        ("importance_sampling", {"beta": 1.0}, ONE, "has no setting 'beta'; it knows none"),
        ("gspo", {}, ONE, "gspo needs the setting 'clip_low_threshold'"),
        ("dro", {}, ONE, "dro needs the setting 'beta'"),
        ("ppo", {}, {"logprobs": [-1.0]}, "ppo needs the input 'advantages'"),
        ("ppo", {}, {**ONE, "mask": [1.0]}, "ppo has no input 'mask'"),
        ("ppo", {}, ONE, "ppo needs the setting 'clip_low_threshold'"),
        ("ppo", {}, {**ONE, "advantages": [1.0, 2.0]}, r"advantages of ppo has shape \(2,\)"),
        (
            "ppo",
            {"clip_low_threshold": 1.3, "clip_high_threshold": 1.2},
            ONE,
            "clip_low_threshold is above clip_high_threshold",
        ),
        ("ppo", DEFAULT["ppo"], {**ONE, "advantages": [float("nan")]}, "ppo is not finite"),
        ("importance_sampling", {}, {**ONE, "logprobs": [-1e4]}, "is not finite"),
    ],
)
def test_mistakes_are_named(
    name: str, config: dict[str, float], inputs: dict[str, list[float]], message: str
) -> None:
    with pytest.raises(AlgorithmError, match=message):
        builtin_loss_and_grad(name, config, [-1.0], inputs)


@given(policy_data())
def test_what_was_not_sampled_adds_nothing_to_stable_reinforce(data: Data) -> None:
    """The value and the gradient are those of the sampled tokens alone."""
    (lp_T, inputs), config = data, CONFIG["stable_reinforce"]
    sampled_T = np.arange(len(lp_T)) % 2
    value, grad_T = builtin_loss_and_grad(
        "stable_reinforce", config, lp_T, {**inputs, "sampled": sampled_T}
    )
    alone = {key: column[sampled_T == 1] for key, column in inputs.items()}
    expected, expected_T = builtin_loss_and_grad(
        "stable_reinforce", config, lp_T[sampled_T == 1], alone
    )
    assert value == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(grad_T[sampled_T == 0], 0)
    np.testing.assert_array_equal(grad_T[sampled_T == 1], expected_T)
