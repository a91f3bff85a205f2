"""Formulas as text."""

from __future__ import annotations

import pytest
from expression_strategies import programs
from expressions import program
from hypothesis import given

from rlc.algo import Program, derivative_formula, formula, ranges, ratio_is_bounded
from rlc.algo.expressions.formula import number


@pytest.mark.parametrize(
    ("text", "lines", "slope"),
    [
        (
            "-min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)",
            ["L = − Σ_t min(ρ_t A_t, clip(ρ_t, 0.8, 1.2) A_t)"],
            [
                "∂L/∂log p_t = −where(ρ_t A_t ≤ clip(ρ_t, 0.8, 1.2) A_t, ρ_t A_t, "
                "where(0.8 ≤ ρ_t ≤ 1.2, ρ_t A_t, 0))"
            ],
        ),
        (
            "-(logp * adv - 0.05 / 2 * (logp - logq) * (logp - logq))",
            ["L = − Σ_t (log p_t A_t − 0.025 (log p_t − log q_t)²)"],
            ["∂L/∂log p_t = 0.05 (log p_t − log q_t) − A_t"],
        ),
        (
            "tau = where(adv > 0, 1, 1.05)\n"
            "gate = 4 / tau * sigmoid(tau * (ratio - 1))\ntoken = -gate * adv",
            [
                "tau_t = where(A_t > 0, 1, 1.05)",
                "gate_t = (4 / tau_t) sigmoid(tau_t (ρ_t − 1))",
                "L = − Σ_t gate_t A_t",
            ],
            ["∂L/∂log p_t = −4 sigmoid(tau_t (ρ_t − 1)) (1 − sigmoid(tau_t (ρ_t − 1))) ρ_t A_t"],
        ),
        (
            "s = exp(mean(logp - logq))\nsequence = -s * mean(adv)",
            ["s = exp(mean_t(log p_t − log q_t))", "L = −s mean_t(A_t)"],
            ["∂L/∂log p_t = −s mean_t(A_t) / n"],
        ),
        (
            "-ratio * adv + 0.1 * (exp(ref - logp) - (ref - logp) - 1)",
            ["L = Σ_t (−ρ_t A_t + 0.1 (exp(log p_ref,t − log p_t) − (log p_ref,t − log p_t) − 1))"],
            ["∂L/∂log p_t = 0.1 (1 − exp(log p_ref,t − log p_t)) − ρ_t A_t"],
        ),
    ],
)
def test_formulas(text: str, lines: list[str], slope: list[str]) -> None:
    assert list(formula(program(text))) == lines
    assert list(derivative_formula(program(text))) == slope


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("logp - (adv - ref)", "(log p_t − (A_t − log p_ref,t))"),
        ("logp + (adv + ref)", "(log p_t + A_t + log p_ref,t)"),
        ("adv / (ref / logp)", "A_t / (log p_ref,t / log p_t)"),
        ("adv / (2 * logp)", "A_t / (2 log p_t)"),
        ("adv * (ref / logp)", "A_t (log p_ref,t / log p_t)"),
        ("logp * -3", "(−3 log p_t)"),
        ("adv + logp * -3", "(A_t − 3 log p_t)"),
        ("adv * adv * adv * logp", "A_t³ log p_t"),
        ("logp * logp", "(log p_t)²"),
        ("sqrt(logp) * abs(logp - 1)", "√(log p_t) |log p_t − 1|"),
        ("where(adv != 0, logp, 1e-12 * 1e20)", "where(A_t ≠ 0, log p_t, 100000000)"),
        ("stop(logp) * sum(logp) / length", "sg(log p_t) sum_t(log p_t) / n"),
    ],
)
def test_parentheses(text: str, result: str) -> None:
    assert formula(program(text)) == (f"L = Σ_t {result}",)


def test_a_reward() -> None:
    shaped = program("total - 0.001 * tokens + where(truncated, -1, 0)", kind="reward")
    assert formula(shaped) == ("reward = total − 0.001 tokens + where(truncated ≠ 0, −1, 0)",)


def test_numbers() -> None:
    values = (1.0, 0.1 + 0.2, 1e-5, -2.0, 1.0004, 1e30, 0.0)
    assert [number(v) for v in values] == ["1", "0.3", "1e-5", "−2", "1.0004", "1e30", "0"]


def test_a_large_part_that_is_read_often_is_written_once() -> None:
    """Written out, this would be 2³⁰ terms."""
    lines = "\n".join("x = exp(x + adv) * exp(x + adv - 1) + x * x" for _ in range(30))
    text = formula(program(f"x = logp\n{lines}"))
    assert len("\n".join(text)) < 10_000


@pytest.mark.parametrize("around", ["exp({})", "abs({} - 1)", "where(adv > 0, {}, 1)", "{} + adv"])
def test_the_deepest_expression_is_handled(around: str) -> None:
    text = "x = logp\n" + "\n".join(f"x = {around.format('x')}" for _ in range(90))
    loss = program(text)
    lines = *formula(loss), *derivative_formula(loss)
    assert max(map(len, lines)) < 1_000
    assert ranges(loss).result.high >= 0
    ratio_is_bounded(loss)


@given(loss=programs())
def test_every_program_has_a_formula(loss: Program) -> None:
    text = "\n".join((*formula(loss), *derivative_formula(loss)))
    assert text.count("(") == text.count(")")
    assert len(text) < 5_000
    assert "None" not in text
