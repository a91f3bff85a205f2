"""Losses as functions of torch: what a service traces of them is the float64 definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from expression_strategies import Columns, columns, is_finite, programs
from expressions import program
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlc.algo import AlgorithmError, Program, torch_function
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.catalog.index import own_loss_traits
from rlc.plan.parts import LossPlan
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.optimizer import compiled

pytestmark = pytest.mark.engine


def traced(loss: Program) -> Any:
    """The function as the embedded engine takes it from its traced graph."""
    from rlc.service.engine.custom_loss import CustomLoss

    return CustomLoss.trace(*compiled(torch_function(loss, "mine", own_loss_traits(loss).weighted)))


def sent(data: Columns, mask_T: np.ndarray) -> TrainingDatum:
    """A datum as the runtime makes it: nothing is known of tokens that were not sampled."""

    def spread(name: str) -> np.ndarray:
        spread_T = np.zeros(len(mask_T))
        spread_T[mask_T] = data[name]
        return spread_T

    return TrainingDatum(
        inputs=[1] * len(mask_T),
        targets_T=np.ones(len(mask_T), np.int64),
        logprobs_T=spread("logq"),
        advantages_T=spread("adv"),
        mask_T=mask_T,
        scored={"reference": spread("ref")},
        weight=0.25,
    )


@given(loss=programs(), data=columns(), gaps=st.lists(st.integers(0, 2), min_size=5, max_size=5))
@settings(deadline=None)
def test_the_traced_function_is_the_definition(
    loss: Program, data: Columns, gaps: list[int]
) -> None:
    import torch

    count = len(data["logp"])
    mask_T = np.repeat([False, True] * count, [n for g in gaps[:count] for n in (g, 1)])
    data = {key: values.astype(np.float32).astype(np.float64) for key, values in data.items()}
    try:
        value, grad_T = loss_and_grad(loss, data)
    except AlgorithmError:
        assume(False)
    assume(abs(value) < 1e6 and np.abs(grad_T).max() < 1e6)
    # What a `clip` or `min` leaves behind may be infinite here, and is NaN to torch's gradient.
    assume("where" in {node.op for node in loss.nodes} or is_finite(loss, data))
    logp_T = torch.full((len(mask_T),), -7.0, dtype=torch.float64)
    logp_T[torch.from_numpy(mask_T)] = torch.from_numpy(data["logp"])
    logp_T.requires_grad_()
    datum, custom = sent(data, mask_T), traced(loss)
    arrays = custom.read_inputs(datum.to_tinker(LossPlan("mine", {}, loss)), "a datum")
    assert custom.facts.joinable
    total, _ = custom.total(logp_T, [arrays], [0])
    total.backward()
    assert logp_T.grad is not None
    scale = 0.25 if own_loss_traits(loss).weighted else 1.0
    assert total.item() == pytest.approx(scale * value, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(logp_T.grad[mask_T], scale * grad_T, rtol=1e-7, atol=1e-9)
    assert not logp_T.grad[~mask_T].any()


@pytest.mark.parametrize("text", ["clip(mean(logp), mean(logp), logp)", "clip(logp, sum(logp), 0)"])
@pytest.mark.parametrize("count", [1, 3])
def test_shapes_go_together_in_a_clip(text: str, count: int) -> None:
    """As a client computes it, by torch alone."""
    import torch

    loss = program(f"x = {text}\nx * x")
    value, grad_T = loss_and_grad(loss, {"logp": np.linspace(-2.0, -1.0, count)})
    written = torch_function(loss, "mine")
    scope: dict[str, Any] = {"torch": torch}
    exec(written.source, scope)
    logp_T = torch.linspace(-2.0, -1.0, count, dtype=torch.float64, requires_grad=True)
    first_T = torch.zeros(count, dtype=torch.float64)
    first_T[0] = 1
    total, _ = scope["mine"](logp_T, torch.ones(count, dtype=torch.float64), first_T)
    total.backward()
    assert total.item() == pytest.approx(value)
    assert logp_T.grad is not None
    np.testing.assert_allclose(logp_T.grad.numpy(), grad_T, rtol=1e-12)


def test_it_reads_like_what_it_says() -> None:
    gate = "tau = where(adv > 0, 1, 1.05)\ngate = 4 / tau * sigmoid(tau * (ratio - 1))\n-gate * adv"
    written = torch_function(program(gate), "sapo")
    assert written.source == (
        "def sapo(logprobs, logq, adv, mask, first):\n"
        "    sampled = mask > 0\n"
        "    logp = torch.where(sampled, logprobs, (logprobs * first).sum().detach())\n"
        "    tau = torch.where(adv > 0.0, torch.ones_like(logp), 1.05)\n"
        "    gate = 4.0 / tau * torch.sigmoid(tau * (torch.exp(logp - logq) - 1.0))\n"
        "    return torch.where(sampled, -(gate * adv), 0.0).sum(), {}\n"
    )


def test_names_never_become_code() -> None:
    loss = program("part = ratio * adv\n-part * part")
    nodes = [evolve(n, name="x = exit()" if n.name == "part" else n.name) for n in loss.nodes]
    source = torch_function(evolve(loss, nodes=tuple(nodes)), "f():\n exit()\ndef g").source
    assert "exit" not in source
    compile(source, "", "exec")


def test_names_that_python_or_torch_have_are_left_to_them() -> None:
    text = "mask = ratio * adv\ntorch = mask * mask\n-torch"
    source = torch_function(program(text), "class").source
    assert source.startswith("def class_(")
    assert "mask2 = " in source
    assert "\n    torch = " not in source
