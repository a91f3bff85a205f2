"""What is known of a loss before it is computed: degree, ranges, bounds, reach of the gradient."""

from __future__ import annotations

import numpy as np
import pytest
from expression_strategies import Columns, columns, programs
from expressions import program
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlc.algo import Program, UndefinedPart, degree, differentiable, ranges, ratio_is_bounded
from rlc.algo.expressions.behaviour import direction
from rlc.algo.expressions.interpret import evaluate

PPO = "-min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)"
SAPO = "tau = where(adv > 0, 1, 1.05)\n-4 / tau * sigmoid(tau * (ratio - 1)) * adv"
GMPO = (
    "held = where(adv > 0, min(logp - logq, 0.4), max(logp - logq, -0.4))\n"
    "-exp(mean(held)) * mean(adv)"
)
DUAL = (
    "low = min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)\n-where(adv < 0, max(low, 3 * adv), low)"
)


@pytest.mark.parametrize(
    ("text", "of", "signed"),
    [
        ("-ratio * adv", 1, True),
        (PPO, 1, False),
        (SAPO, 1, False),
        (GMPO, 1, False),
        (DUAL, 1, False),
        ("s = exp(mean(logp - logq))\n-s * mean(adv)", 1, True),
        ("-(logp * adv - 0.05 * (logp - logq) * (logp - logq))", None, False),
        ("-ratio * adv + 0 * logp", 1, True),
        ("logp * logp", 0, True),
        ("adv * adv * logp", 2, True),
        ("abs(adv) * logp", 1, False),
        ("sqrt(adv * adv) * logp", 1, False),
        ("where(adv == 0, 0, ratio * adv)", 1, True),
        ("where(adv > 1, ratio * adv, adv)", None, False),
        ("where(adv > mean(adv), ratio * adv, adv)", 1, False),
        ("max(ratio * adv, 0)", 1, False),
        ("max(ratio * adv, 1)", None, False),
        ("exp(adv / (1 + abs(adv))) * logp", None, False),
        ("logp * adv * adv / mean(abs(adv))", 1, False),
        ("logp / adv", -1, True),
        ("stop(adv) * logp", 1, True),
    ],
)
def test_degree_in_the_advantage(text: str, of: float | None, signed: bool) -> None:
    found = degree(program(text))
    assert (found.of, found.signed) == (of, signed)


@settings(max_examples=80)
@given(loss=programs(), data=columns(), factor=st.sampled_from([0.5, 2.0, 4.0, -1.0, -2.0]))
def test_a_degree_holds(loss: Program, data: Columns, factor: float) -> None:
    found = degree(loss)
    assume(found.of is not None and (factor > 0 or found.signed))
    plain = {name: column.tolist() for name, column in data.items()}
    scaled = {**plain, "adv": (factor * data["adv"]).tolist()}
    before, after = (np.asarray(evaluate(loss, x), float) for x in (plain, scaled))
    assume(np.isfinite(before).all() and np.abs(before).max() < 1e9)
    np.testing.assert_allclose(after, before * factor ** (found.of or 0.0), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log(adv) * logp", [("log", "a logarithm of what can be 0 or less", "advantage of 0")]),
        ("logp / adv", [("/", "a division by what can be 0", "advantage of 0")]),
        ("logp / mean(adv)", [("/", "a division by what can be 0", "advantage of 0")]),
        ("logp / (adv - 1)", [("/", "a division by what can be 0", "possibly")]),
        ("logp / (1 - 1)", [("/", "a division by what can be 0", "always")]),
        ("log(logp)", [("log", "a logarithm of what can be 0 or less", "always")]),
        ("sqrt(logp)", [("sqrt", "a root of what can be negative", "possibly")]),
        ("sqrt(logp - 1)", [("sqrt", "a root of what can be negative", "always")]),
        (
            "sqrt((logp - logq) * (logp - logq))",
            [("sqrt", "a root of what can be 0, where its slope is infinite", "possibly")],
        ),
        ("sqrt(adv * adv) * logp", []),
        ("log(ratio) + log(1 + adv * adv) + log(sigmoid(adv)) + 1 / exp(logp)", []),
        ("logp / length + logp / (1 + abs(adv)) + logp / softplus(adv)", []),
        ("where(adv > 0, log(adv) * logp, logp)", []),
        ("where(adv <= 0, logp, log(adv) * logp)", []),
        ("w = 1 / adv\nwhere(adv != 0, w * logp, 0)", []),
        ("where(adv == 0, logp, logp / adv)", []),
        ("where(abs(adv) > 0, logp / adv, 0)", []),
        ("where(ratio > 1, log(ratio - 1), logp)", []),
        ("where(logp > logq, sqrt(logp - logq), logp)", []),
        ("where(logp > ref, log(logp - ref), logp)", []),
        ("where(ref < logp, log(logp - ref), logp)", []),
        ("logp / max(abs(adv), 1e-6) + log(clip(ratio, 0.1, 10)) + logp / min(adv, -1)", []),
        ("tau = where(adv > 0, 1, 1.05)\nlogp / tau", []),
        (
            "where(adv >= 0, logp / adv, logp)",
            [("/", "a division by what can be 0", "advantage of 0")],
        ),
    ],
)
def test_what_can_be_undefined(text: str, expected: list[tuple[str, str, str]]) -> None:
    loss = program(text)

    def told(found: UndefinedPart) -> tuple[str, str, str]:
        return loss.nodes[found.node].op, found.what, found.when

    assert [told(found) for found in ranges(loss).undefined] == expected


@settings(max_examples=80)
@given(loss=programs(), data=columns())
def test_what_has_no_finding_is_defined(loss: Program, data: Columns) -> None:
    """No value is NaN, and the result is in its interval, unless a finding says so."""
    found = ranges(loss)
    assume(not found.undefined and (data["logp"] <= 0).all())
    inputs = {name: column.tolist() for name, column in data.items()}
    result = evaluate(loss, inputs)
    for value in result if isinstance(result, list) else [result]:
        assume(abs(value) < 1e300)  # an overflow is no mistake of the expression
        slack = 1e-9 * max(1.0, abs(value))
        assert found.result.low - slack <= value <= found.result.high + slack


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where(ratio < 0, logp, adv * logp)", [False]),
        ("where(logp <= 0, logp, adv)", [True]),
        ("where(adv > 0, logp, adv * logp)", []),
        ("where(adv > 0, where(adv > -1, logp, 2), adv * logp)", [True]),
        ("x = where(adv > 0, 1, 2)\nwhere(adv > 0, logp * x, where(adv > 0, logp, x))", []),
    ],
)
def test_conditions_that_decide_nothing(text: str, expected: list[bool]) -> None:
    assert [found.holds for found in ranges(program(text)).decided] == expected


@pytest.mark.parametrize(
    ("text", "positive", "negative"),
    [
        ("-ratio * adv", False, False),
        (PPO, True, False),
        (DUAL, True, True),
        (SAPO, True, True),
        (GMPO, True, False),
        ("-stop(clip(ratio, 0, 4)) * logp * adv", True, True),
        ("-adv * logp", True, True),
        ("-(logp * adv - 0.05 * (logp - logq) * (logp - logq))", True, True),
        ("s = exp(mean(logp - logq))\n-s * mean(adv)", False, False),
        ("-sqrt(ratio) * adv", False, False),
        ("-adv * logp / ratio", False, False),
        ("-where(ratio < 5, ratio, 0) * adv", True, True),
    ],
)
def test_bounds_of_the_ratio(text: str, positive: bool, negative: bool) -> None:
    found = ratio_is_bounded(program(text))
    assert (found.positive, found.negative) == (positive, negative)


@pytest.mark.parametrize(
    ("text", "reaches"),
    [
        ("-adv * logp", True),
        ("-adv * stop(logp)", False),
        ("-adv * logq", False),
        ("where(logp > logq, adv, 0)", False),
        ("stop(ratio) * adv + mean(logp)", True),
    ],
)
def test_whether_the_gradient_reaches_logp(text: str, reaches: bool) -> None:
    assert differentiable(program(text))[-1] is reaches


def test_conditions_on_conditions_are_looked_at_in_reasonable_time() -> None:
    """Each part is chosen by the one before it: every branch alone would be 2⁴⁰ cases."""
    parts = [f"a{i} = where(a{i - 1} > 1, a{i - 1} * 2, a{i - 1} * 3)" for i in range(1, 41)]
    found = ranges(program("\n".join(["a0 = ratio - 1", *parts, "-a40 * adv / a40"])))
    assert [item.what for item in found.undefined] == ["a division by what can be 0"]


@pytest.mark.parametrize("text", ["0 * logp * adv", "(1 - 1) * ratio", "mean(0 * logp) + adv"])
def test_no_gradient_reaches_through_a_product_with_zero(text: str) -> None:
    made = program(text)
    assert not differentiable(made)[made.output]


@pytest.mark.parametrize(
    ("text", "lowers_good", "raises_bad", "still"),
    [
        ("-ratio * adv", False, False, False),
        (PPO, False, False, False),
        (SAPO, False, False, False),
        (GMPO, False, False, False),
        (DUAL, False, False, False),
        ("-(logp * adv - 0.05 * (logp - logq) * (logp - logq))", False, False, False),
        ("where(adv > 0, -logp, 0)", False, False, False),
        ("-logp", False, False, False),  # imitates, whatever the advantage: that is said elsewhere
        ("ratio * adv", True, True, False),
        ("logp * adv", True, True, False),
        ("-exp(logq - logp) * adv", True, True, False),
        ("max(ratio * adv, clip(ratio, 0.8, 1.2) * adv)", True, True, False),
        ("-ratio * adv * adv", False, True, False),
        ("-ratio * abs(adv)", False, True, False),
        ("-clip(ratio, 1, 1) * adv", False, False, True),
        ("-clip(ratio, 1.2, 3) * adv", False, False, True),
    ],
)
def test_where_a_loss_moves_the_policy(
    text: str, lowers_good: bool, raises_bad: bool, still: bool
) -> None:
    found = direction(program(text))
    assert (found.lowers_good, found.raises_bad, found.still) == (lowers_good, raises_bad, still)
