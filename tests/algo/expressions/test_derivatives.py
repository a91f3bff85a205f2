"""Three derivatives of a loss: symbolic, by reverse accumulation, and by differences."""

from __future__ import annotations

import numpy as np
import pytest
from expression_strategies import Columns, columns, programs
from expressions import program
from hypothesis import assume, example, given, settings

from rlc.algo import AlgorithmError, Program
from rlc.algo.expressions.behaviour import derivative
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.algo.expressions.interpret import evaluate


def lists(data: Columns) -> dict[str, list[float]]:
    return {name: column.tolist() for name, column in data.items()}


def symbolic(loss: Program, data: Columns, ties: bool = True) -> np.ndarray:
    found = evaluate(derivative(loss, ties), lists(data))
    return np.broadcast_to(np.asarray(found, float), data["logp"].shape)


@settings(max_examples=100)
@given(loss=programs(), data=columns())
@example(
    program("where(ratio > 1, sqrt(ratio - 1), 0)"), {"logp": np.zeros(1), "logq": np.zeros(1)}
)
def test_symbolic_and_reverse_derivative_are_equal(loss: Program, data: Columns) -> None:
    """Everywhere, ties included, wherever they are finite."""
    try:
        _, grad_T = loss_and_grad(loss, data)
    except AlgorithmError:
        assume(False)
    assume(np.abs(grad_T).max() < 1e6)
    np.testing.assert_allclose(symbolic(loss, data), grad_T, rtol=1e-8, atol=1e-8)


SMOOTH = """
d = logp - logq
a = sqrt(1 + d * d) * sigmoid(2 * d) - softplus(adv * logp) / (2 + exp(d))
s = exp(mean(d * adv)) + log(3 + sum(a) * sum(a))
"""
SMOOTH_ONES = ("token", "sequence")
LOSSES = {
    "token": SMOOTH + "a * s + where(adv > 0, a, d * s) + length * d",
    "sequence": SMOOTH + "s * mean(d * d * s) + sum(exp(d)) / length",
    "ppo": "-min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)",
    "gmpo": "held = where(adv > 0, min(logp - logq, 0.4), max(logp - logq, -0.4))\n"
    "-exp(mean(held)) * mean(adv)",
    "bounds": "clip(adv, logp, ratio) + abs(logp + 1) * max(ratio, adv)",
}


@pytest.mark.parametrize("name", LOSSES)
@given(data=columns())
def test_derivatives_are_slopes(name: str, data: Columns) -> None:
    """Where a loss is smooth, both derivatives are its central difference."""
    loss, step = program(LOSSES[name]), 1e-6
    _, grad_T = loss_and_grad(loss, data)
    for t in range(len(grad_T)):
        up, down = ({**data, "logp": data["logp"].copy()} for _ in range(2))
        up["logp"][t] += step
        down["logp"][t] -= step
        sides = [loss_and_grad(loss, side) for side in (up, down)]
        apart = np.abs(sides[0][1] - sides[1][1]).max()
        if name not in SMOOTH_ONES and apart > 1e-5 * (1 + abs(grad_T[t])):
            continue  # there may be a kink between the two
        slope = (sides[0][0] - sides[1][0]) / (2 * step)
        beside = (sides[0][1][t] + sides[1][1][t]) / 2  # at a tie, kinks may cancel each other
        found = grad_T[t] if name in SMOOTH_ONES else beside
        assert found == pytest.approx(slope, rel=1e-5, abs=1e-5)
    for ties in (True, False):
        if ties or name in SMOOTH_ONES:
            np.testing.assert_allclose(symbolic(loss, data, ties), grad_T, rtol=1e-10, atol=1e-10)


LEAKS = [
    ("where(ratio > 1, sqrt(ratio - 1), logp)", [1.0, 1.0, 1.0]),
    ("where(adv > 0, log(adv) * logp, ratio)", [1.0, 1.0, np.exp(-0.5)]),
    ("sqrt(where(ratio > 1, ratio - 1, 0))", [0.0, 0.0, 0.0]),
    ("logp * where(adv != 0, 1 / adv, 2)", [2.0, 2.0, 2.0]),
    ("where(mean(adv) > 0, mean(sqrt(logp - logq)), mean(logp))", [1 / 3, 1 / 3, 1 / 3]),
    ("where(adv == 0, logp, exp(exp(exp(9 - logp))))", [1.0, 1.0, 1.0]),
    ("1 / sqrt(max(ratio - 1, 0.25)) + ratio", [1.0, 1.0, np.exp(-0.5)]),
]


@pytest.mark.parametrize(("text", "expected"), LEAKS)
def test_what_a_where_does_not_choose_has_no_effect(text: str, expected: list[float]) -> None:
    data = {"logq": np.full(3, -1.0), "logp": np.array([-1.0, -1.0, -1.5]), "adv": np.zeros(3)}
    loss = program(text)
    value, grad_T = loss_and_grad(loss, data)
    assert np.isfinite(value)
    np.testing.assert_allclose(grad_T, expected, rtol=1e-12)
    np.testing.assert_allclose(symbolic(loss, data), expected, rtol=1e-12)


def test_ties_share_the_gradient() -> None:
    data = {"logq": np.full(2, -1.0), "logp": np.full(2, -1.0), "adv": np.array([1.0, -1.0])}
    for text, expected in [
        ("min(ratio, 1)", 0.5),
        ("max(ratio, 1)", 0.5),
        ("clip(ratio, 1, 2)", 1.0),
        ("clip(ratio, 0, 1)", 1.0),
        ("abs(ratio - 1)", 0.0),
        ("min(ratio, ratio)", 1.0),
        ("min(ratio, logp + 2)", 1.0),
    ]:
        _, grad_T = loss_and_grad(program(text), data)
        assert grad_T.tolist() == [expected, expected], text
        assert symbolic(program(text), data).tolist() == [expected, expected], text


def test_a_derivative_reads_well() -> None:
    """Numbers in front, choices outside; nothing is computed that is 0."""
    made = derivative(program("-stop(clip(ratio, 0, 4)) * logp * adv"), ties=False)
    assert made == program("-(stop(clip(ratio, 0, 4)) * adv)")
    assert derivative(program("-adv * logp + stop(ratio)")) == program("-adv")
    pulled = derivative(program("0.15 * (logp - logq) * (logp - logq)"))
    assert pulled == program("0.3 * (logp - logq)")


def test_only_sampled_tokens_exist() -> None:
    """What stands on other tokens is not read, and neither counts nor has a gradient."""
    loss = program("s = exp(mean(logp - logq))\n -s * adv * logp / length")
    rng = np.random.default_rng(0)
    data = {name: rng.normal(-1, 0.3, 5) for name in ("logp", "logq", "adv")}
    mask_T = np.array([0, 1, 0, 1, 1])
    shorter = {name: column[mask_T > 0] for name, column in data.items()}
    expected, expected_S = loss_and_grad(loss, shorter)
    for column in data.values():
        column[mask_T == 0] = np.nan
    value, grad_T = loss_and_grad(loss, data, mask_T)
    assert value == expected
    np.testing.assert_array_equal(grad_T[mask_T > 0], expected_S)
    assert not grad_T[mask_T == 0].any()
    assert loss_and_grad(loss, data, np.zeros(5))[0] == 0


def test_weights_multiply_the_loss() -> None:
    rng = np.random.default_rng(0)
    data = {name: rng.normal(-1, 0.3, 4) for name in ("logp", "logq", "adv")}
    token, sequence = program("-ratio * adv + logp * logp"), program("-exp(mean(logp)) * sum(adv)")
    for loss in (token, sequence):
        value, grad_T = loss_and_grad(loss, data)
        half, half_T = loss_and_grad(loss, data, weights=0.5)
        assert half == pytest.approx(value / 2)
        np.testing.assert_allclose(half_T, grad_T / 2)
    weights_T = np.array([1.0, 0.0, 2.0, 1.0])
    _, grad_T = loss_and_grad(token, data)
    np.testing.assert_allclose(loss_and_grad(token, data, weights=weights_T)[1], grad_T * weights_T)
    with pytest.raises(AlgorithmError, match="do not fit a sequence loss"):
        loss_and_grad(sequence, data, weights=weights_T)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"logp": [-1.0]}, "the loss reads `logq`, which is not there"),
        ({"logp": [-1.0], "logq": [-1.0, -2.0], "adv": [1.0]}, r"logq has shape \(2,\)"),
        ({"logp": [0.0, -1.0], "logq": [0.0, -900], "adv": [1.0, 1.0]}, "not finite at token 1"),
    ],
)
def test_what_cannot_be_computed_is_refused(data: dict[str, list[float]], says: str) -> None:
    with pytest.raises(AlgorithmError, match=says):
        loss_and_grad(program("-ratio * adv"), data)
