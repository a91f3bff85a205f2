"""The library of losses, from its file to what a service computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from paths import ROOT
from run_support import TINY, train
from stage_parts import flat

from rlc.algo.expressions.evaluate import batch_values, loss_and_grad
from rlc.algo.expressions.python import torch_function
from rlc.catalog.index import loss_traits
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.stages import Training
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.optimizer import compiled

pytestmark = pytest.mark.engine

LIBRARY = (ROOT / "recipes/lib/losses.rl").read_text(encoding="utf-8")
LOSSES = dict(re.findall(r"^loss (\w+)(\(.*\))? \{", LIBRARY, re.MULTILINE))
SERVED = {
    "log_likelihood": "cross_entropy",
    "importance": "importance_sampling",
    "clipped_surrogate": "ppo",
    "clipped_weight": "cispo",
    "truncated_importance": "cispo",
    "quadratic_pull": "dro",
    "shared_ratio": "gspo",
    "sequence_ratio": "gspo",
}
# What is said of the loss itself under two updates of a batch, which is off-policy.
SAID = {"log_likelihood": {"RL0435"}, "ppo_entropy": {"RL0651"}, "kl_cov": {"RL0651"}}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_the_library_is_computed_as_defined(name: str) -> None:
    import torch

    from rlc.service.engine.custom_loss import CustomLoss

    call = f"{name}()" if LOSSES[name] else name
    fields = {"loss": call, "batch": "groups(3, group_size = 4, updates = 2)"}
    if name == "ppo_k3":
        fields["kl"] = "reference(policy.base, coef = 0)"
    made = compile_source(Source("recipe.rl", TINY + LIBRARY + train(**fields)))
    assert made.plan is not None
    assert {item.code for item in made.diagnostics} - {"RL0114"} == SAID.get(name, set())
    (stage,) = made.plan.stages
    assert isinstance(stage, Training)
    loss = flat(stage).loss
    if name in SERVED:
        assert (loss.name, loss.program) == (SERVED[name], None)
        return
    assert loss.program is not None
    weighted = loss_traits(loss).weighted
    custom = CustomLoss.trace(*compiled(torch_function(loss.program, name, weighted)))
    rng = np.random.default_rng(1)
    for _ in range(20):
        mask_T = rng.random(9) < 0.7
        mask_T[3] = True

        def column(values: Any, mask_T: Any = mask_T) -> Any:
            return np.where(mask_T, values, 0).astype(np.float32).astype(np.float64)

        logq_T, adv_T = column(-3 * rng.random(9) - 0.1), column(rng.normal(size=9))
        ref_T, logp_T = column(-3 * rng.random(9)), logq_T + rng.normal(0, 0.4, 9)
        targets_T = np.ones(9, np.int64)
        row = {"logq": logq_T[mask_T], "adv": adv_T[mask_T]}
        (computed,) = batch_values(loss.program, [row], [rng.random(mask_T.sum())])
        datum = TrainingDatum([1] * 9, targets_T, logq_T, adv_T, mask_T, weight=0.5)
        datum = evolve(datum, scored={"reference": ref_T}, batch=computed)
        lp_T = torch.tensor(logp_T, requires_grad=True)
        total, _ = custom.total(lp_T, [custom.read_inputs(datum.to_tinker(loss), "")], [0])
        (found_T,) = torch.autograd.grad(total, lp_T)
        inputs = {"logp": logp_T, "logq": logq_T, "adv": adv_T, "ref": ref_T}
        for key, value in computed.items():
            inputs[key] = np.zeros(9)
            inputs[key][mask_T] = value
        scale = datum.weight if weighted else 1.0
        value, grad_T = loss_and_grad(loss.program, inputs, mask_T, scale)
        assert total.item() == pytest.approx(value, rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(found_T, grad_T, rtol=1e-12, atol=1e-12)
