"""The conventions at ties and bounds are torch's, which computes the losses elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from expressions import program

from rlc.algo.expressions.evaluate import loss_and_grad

pytestmark = pytest.mark.engine

POINTS = [-2.0, -1.0, 0.0, 1.0, 2.0]


@pytest.mark.parametrize("b", POINTS)
@pytest.mark.parametrize("c", POINTS)
def test_ties_and_bounds(b: float, c: float) -> None:
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
