"""Losses over preferences: values and derivatives, those that come with rlc, and how they are
recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expressions import program
from hypothesis import assume, given
from hypothesis import strategies as st

from rlc.algo import AlgorithmError, ExpressionError, Program
from rlc.algo.expressions.behaviour import derivative, direction
from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.evaluate import preference_loss_and_grad
from rlc.algo.expressions.formula import derivative_formula, formula
from rlc.algo.expressions.inputs import LENGTHS, OF_TOKENS
from rlc.algo.expressions.interpret import evaluate
from rlc.algo.expressions.vocabulary import INPUTS, trained
from rlc.algo.preferences import preference_program
from rlc.catalog.index import known_preference, names_of

NAMES = names_of("preference_loss")
PAIRS = [n for n, one in INPUTS["preference"].items() if one.shape in ("pair", "chosen_token")]
PAIRS += [n for n, one in INPUTS["preference"].items() if one.shape == "rejected_token"]
REPLIES = [n for n in INPUTS["preference"] if n not in PAIRS]
SMOOTH = ("sigmoid", "softplus", "exp", "expm1", "neg", "stop", "sqrt")


def preference(text: str) -> Program:
    return program(text, kind="preference")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A loss of pairs or of replies, of any operations."""
    builder = Builder("preference")
    names = draw(st.sampled_from([PAIRS, REPLIES]))
    pool = [builder.input(name) for name in names]
    pool += [builder.number(value) for value in (1.0, 0.5, -2.0)]
    for _ in range(draw(st.integers(3, 14))):
        a, b, c = (draw(st.sampled_from(pool[-5:] + pool)) for _ in range(3))
        try:
            match draw(st.integers(0, 5)):
                case 0 | 1:
                    made = builder.apply(draw(st.sampled_from("+-*/")), a, b)
                case 2:
                    made = builder.apply(draw(st.sampled_from(SMOOTH)), a)
                case 3:
                    made = builder.apply(draw(st.sampled_from(("min", "max"))), a, b)
                case 4:
                    made = builder.apply("where", builder.apply("<", a, b), b, c)
                case _:
                    op = "batch_mean" if builder.shape(a) in ("pair", "reply") else "mean"
                    made = builder.apply(draw(st.sampled_from((op, "sum"))), a)
        except ExpressionError:
            continue  # tokens of different replies, and sums of what is no token
        pool.append(made)
    usable = (n for n in reversed(pool) if builder.shape(n) in ("pair", "reply"))
    found = [builder.program(node) for node in usable]
    found = [one for one in found if trained(one)]
    assume(found)
    return found[0]


def batch(seed: int, size: int = 3) -> dict[str, Any]:
    """The inputs of so many pairs and replies; sums are not those of the tokens, which a derivative
    by one of them does not ask for."""
    rng = np.random.default_rng(seed)
    lengths = {name: rng.integers(1, 5, size) for name in LENGTHS.values()}
    found: dict[str, Any] = {"good": rng.integers(0, 2, size) * 1.0}
    for name, one in INPUTS["preference"].items():
        if one.shape in OF_TOKENS:
            found[name] = [-2 * rng.random(n) for n in lengths[LENGTHS[one.shape]]]
        elif name.endswith("length"):
            found[name] = lengths.get(name, rng.integers(1, 5, size)) * 1.0
        elif name not in found:
            found[name] = rng.uniform(-3, 0, size)
    return found | {name: np.full(size, 0.7) for name in ("chosen_nll", "chat_nll")}


def moved(inputs: dict[str, Any], name: str, at: int, by: float) -> dict[str, Any]:
    """Inputs of which one number is another."""
    column = inputs[name]
    flat = np.concatenate(column) if isinstance(column, list) else column.copy()
    flat[at] += by
    if isinstance(column, list):
        return {**inputs, name: np.split(flat, np.cumsum([len(row) for row in column])[:-1])}
    return {**inputs, name: flat}


def assert_slopes(loss: Program, inputs: dict[str, Any], step: float = 1e-6) -> None:
    """The gradient is the central difference, where there is no kink between its sides."""
    _, grads = preference_loss_and_grad(loss, inputs)
    assert set(grads) == set(trained(loss))
    for name, grad in grads.items():
        for at, slope in enumerate(grad):
            (up, high), (down, low) = (
                preference_loss_and_grad(loss, moved(inputs, name, at, by)) for by in (step, -step)
            )
            if abs(high[name][at] - low[name][at]) < 1e-5 * (1 + abs(slope)):
                assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-5)


@given(loss=programs(), seed=st.integers(0, 1_000))
def test_a_derivative_is_the_slope_of_the_loss(loss: Program, seed: int) -> None:
    if any(node.op in ("stop", "batch_mean") for node in loss.nodes):
        return  # whose gradient is not that of the value, and is tested below
    try:
        value, grads = preference_loss_and_grad(loss, batch(seed))
        assume(abs(value) < 1e3 and all(np.abs(grad).max() < 1e3 for grad in grads.values()))
        assert_slopes(loss, batch(seed))
    except AlgorithmError:
        assume(False)


@given(loss=programs(), seed=st.integers(0, 1_000))
def test_a_batch_is_the_mean_of_its_examples(loss: Program, seed: int) -> None:
    """Computed at once, or each by itself, in pure Python."""
    assume(all(node.op != "batch_mean" for node in loss.nodes))
    inputs = batch(seed)
    try:
        value, grads = preference_loss_and_grad(loss, inputs)
    except AlgorithmError:
        assume(False)
    assume(abs(value) < 1e6)
    examples = [
        {name: list(column[at]) if isinstance(column, list) else float(column[at])
         for name, column in inputs.items()}
        for at in range(3)
    ]  # fmt: skip
    assert value == pytest.approx(np.mean([evaluate(loss, one) for one in examples]), rel=1e-9)
    for name, grad in grads.items():
        slope = derivative(loss, by=name)
        alone = [np.asarray(evaluate(slope, one)) / 3 for one in examples]
        if isinstance(inputs[name], list):
            alone = [s + np.zeros(len(row)) for s, row in zip(alone, inputs[name], strict=True)]
        np.testing.assert_allclose(grad, np.hstack(alone), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        "softplus(-0.1 * (chosen - rejected)) - sum(min(chosen_token - chosen_ref_token, 0.1))",
        "m = mean(rejected_token * rejected_token)\n(m - sum(chosen_token * m)) / chosen_length",
        "s = sum(exp(rejected_token - rejected))\nsoftplus(s - mean(chosen_token - chosen)) * s",
        "where(good, sigmoid(-mean(logp_token - ref_token)), sigmoid(logp - ref) * length)",
        "chosen_nll * chosen_nll + exp(-chat_nll) * sigmoid(rejected - chosen)",
        "log(-expm1(chosen / chosen_length)) + sqrt(1 + rejected * rejected)",
    ],
)
def test_losses_of_tokens_have_the_slope_of_each(text: str) -> None:
    for seed in range(5):
        assert_slopes(preference(text), batch(seed))


def test_a_mean_over_the_batch_is_a_constant_for_the_gradient() -> None:
    inputs = batch(1)
    for text, constant in (
        ("(logp - batch_mean(logp)) * (logp - batch_mean(logp))", np.mean(inputs["logp"])),
        ("(logp - stop(logp)) * 2 + 0 * batch_mean(ref)", None),
    ):
        _, grads = preference_loss_and_grad(preference(text), inputs)
        expected = 2.0 if constant is None else 2 * (inputs["logp"] - constant)
        np.testing.assert_allclose(grads["logp"], expected / 3 + np.zeros(3), atol=1e-15)


def test_what_is_not_finite_is_refused_with_its_place() -> None:
    inputs = batch(1) | {"chosen": np.array([-1.0, 0.0, -1.0])}
    with pytest.raises(AlgorithmError, match="not finite, where chosen = 0"):
        preference_loss_and_grad(preference("log(-chosen) + rejected"), inputs)
    with pytest.raises(AlgorithmError, match="reads `rejected`, which is not there"):
        preference_loss_and_grad(preference("softplus(rejected - chosen)"), {})


@pytest.mark.parametrize("name", NAMES)
def test_those_of_rlc_teach_what_is_better_and_are_recognised(name: str) -> None:
    loss = preference_program(name, {})
    moves = direction(loss)
    assert (moves.lowers_good, moves.raises_bad, moves.still) == (False, False, False)
    found = known_preference(loss)
    assert found is not None
    assert found.name == name
    assert_slopes(loss, batch(2)) if name != "orpo" else None


WRITTEN = {
    "-log(sigmoid(0.3 * (chosen - rejected - (chosen_ref - rejected_ref))))": (
        "dpo",
        {"beta": 0.3, "label_smoothing": 0.0},
    ),
    "m = (chosen - chosen_ref - rejected + rejected_ref) / 5\n"
    "0.9 * softplus(-m) + softplus(m) / 10": ("dpo", {"beta": 0.2, "label_smoothing": 0.1}),
    "d = (chosen - chosen_ref) / chosen_length - (rejected - rejected_ref) / rejected_length\n"
    "d * d - 10 * d + 25": ("ipo", {"beta": 0.1}),
    "softplus(0.5 + 2 * (rejected / rejected_length - chosen / chosen_length))": (
        "simpo",
        {"beta": 2.0, "gamma": 0.5},
    ),
    "z = max(batch_mean(mismatched - mismatched_ref), 0)\n"
    "where(good == 1, 1 - sigmoid(0.1 * (logp - ref - z)), 2 * sigmoid(0.1 * (logp - ref - z)))": (
        "kto",
        {"beta": 0.1, "desirable": 1.0, "undesirable": 2.0},
    ),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_loss_of_rlc_is_recognised_however_it_is_written(text: str) -> None:
    found = known_preference(preference(text))
    assert found is not None
    name, config = WRITTEN[text]
    assert found.name == name
    assert found.config == pytest.approx(config)


@pytest.mark.parametrize(
    "text",
    [
        "softplus(-0.1 * (chosen - rejected - chosen_ref + 2 * rejected_ref))",
        "softplus(-0.1 * stop(chosen - rejected) + 0.2 * (rejected - chosen))",
        "z = max(mismatched - mismatched_ref, 0)\n"
        "where(good, sigmoid(-0.1 * (logp - ref - z)), sigmoid(0.1 * (logp - ref - z)))",
        "softplus(-0.1 * (sum(chosen_token) - rejected - (chosen_ref - rejected_ref)))",
    ],
)
def test_another_loss_is_not(text: str) -> None:
    assert known_preference(preference(text)) is None


def test_a_formula_says_what_its_derivative_is() -> None:
    loss = preference(
        "fallen = -sum(min(chosen_token - chosen_ref_token, 0))\n"
        "softplus(-0.1 * (chosen - rejected)) + 2 * fallen / chosen_length"
    )
    assert formula(loss) == (
        "fallen = −sum_t(min(log p⁺_t − log p_ref⁺_t, 0))",
        "L = softplus(−0.1 (log p⁺ − log p⁻)) + 2 fallen / n⁺",
    )
    assert [derivative_formula(loss, name)[-1] for name in trained(loss)] == [
        "∂L/∂log p⁺ = −0.1 sigmoid(−0.1 (log p⁺ − log p⁻))",
        "∂L/∂log p⁻ = 0.1 sigmoid(−0.1 (log p⁺ − log p⁻))",
        "∂L/∂log p⁺_t = where(log p⁺_t − log p_ref⁺_t ≤ 0, (−2) / n⁺, 0)",
    ]
