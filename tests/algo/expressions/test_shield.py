"""Losses in torch: the ties and bounds of float64, and shielded programs, which stay finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from expression_strategies import Columns, columns, programs
from expressions import program
from hypothesis import assume, given

from rlc.algo import AlgorithmError, Program
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.algo.expressions.python import shielded


@given(loss=programs(), data=columns())
def test_a_shield_changes_nothing(loss: Program, data: Columns) -> None:
    try:
        value, grad_T = loss_and_grad(loss, data)
    except AlgorithmError:
        assume(False)
    shielded_value, shielded_T = loss_and_grad(shielded(loss), data)
    assert shielded_value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(shielded_T, grad_T, rtol=1e-9, atol=1e-9)


LEAKS = [
    "where(ratio > 1, sqrt(ratio - 1), logp)",
    "where(logp > logq, log(logp - logq), 3 * logp)",
    "where(logp == logq, logp, (logp - 1) / (logp - logq))",
    "where(ratio < 5, ratio, 0) * adv",
    "where(mean(logp - logq) > 1, mean(sqrt(logp - logq)), mean(logp))",
    "where(adv > 0, where(ratio > 1, log(ratio - 1), ratio), logp)",
]


@pytest.mark.engine
@pytest.mark.parametrize("text", LEAKS)
def test_torch_gets_the_gradient(text: str) -> None:
    import torch

    operations: dict[str, Any] = {
        "+": torch.add,
        "-": torch.sub,
        "*": torch.mul,
        "/": torch.div,
        "neg": torch.neg,
        "<": torch.lt,
        ">": torch.gt,
        "==": torch.eq,
        "where": torch.where,
        "exp": torch.exp,
        "log": torch.log,
        "sqrt": torch.sqrt,
        "mean": torch.mean,
    }

    def by_torch(loss: Program, data: Columns) -> np.ndarray:
        tensors = {name: torch.tensor(column) for name, column in data.items()}
        tensors["logp"].requires_grad_()
        values: list[torch.Tensor] = []
        for node in loss.nodes:
            if node.op == "number":
                values.append(torch.tensor(node.value, dtype=torch.float64))
            elif node.op == "input":
                values.append(tensors[node.name or ""])
            else:
                values.append(operations[node.op](*(values[arg] for arg in node.args)))
        (grad_T,) = torch.autograd.grad(values[-1].sum(), tensors["logp"])
        return np.asarray(grad_T.numpy())

    data = {
        "logq": np.array([-1.0, -1.0, -900.0, -0.5]),
        "logp": np.array([-1.0, -1.5, -1.0, -0.25]),
        "adv": np.array([1.0, -1.0, 2.0, 1.0]),
    }
    if "mean" in text:
        data["logq"][2] = -1.0
    loss = program(text)
    if "ratio" in text and "where(ratio < 5" not in text:
        data["logq"][2] = -3.0
    _, grad_T = loss_and_grad(loss, data)
    assert any(math.isnan(x) for x in by_torch(loss, data)), "nothing leaks here"
    np.testing.assert_allclose(by_torch(shielded(loss), data), grad_T, rtol=1e-12)


POINTS = [-2.0, -1.0, 0.0, 1.0, 2.0]


@pytest.mark.engine
@pytest.mark.parametrize("b", POINTS)
@pytest.mark.parametrize("c", POINTS)
def test_ties_and_bounds_follow_torch(b: float, c: float) -> None:
    """logp stands for x; the bounds depend on it too, so that their gradients count."""
    import torch

    def bounds(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return b + 10 * (x - x.detach()), c + 100 * (x - x.detach())

    x_T = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    low_T, high_T = bounds(x_T)
    for text, tensor in [
        ("clip(logp, low, high)", torch.clamp(x_T, low_T, high_T)),
        ("min(logp, low)", torch.minimum(x_T, low_T)),
        ("max(logp, low)", torch.maximum(x_T, low_T)),
        ("abs(logp) * low", torch.abs(x_T) * low_T),
    ]:
        written = f"low = {b} + 10 * (logp - stop(logp))\nhigh = {c} + 100 * (logp - stop(logp))"
        loss, grad_T = loss_and_grad(program(f"{written}\n{text}"), {"logp": np.array(POINTS)})
        (expected_T,) = torch.autograd.grad(tensor.sum(), x_T, retain_graph=True)
        assert loss == tensor.sum().item()
        np.testing.assert_array_equal(grad_T, expected_T.numpy(), err_msg=text)
