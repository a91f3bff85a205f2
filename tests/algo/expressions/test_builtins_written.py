"""Every built-in loss written as an expression is that loss: value and gradient, at ties too."""

from __future__ import annotations

import numpy as np
import pytest
from expressions import program
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.algo.served import LOSSES, builtin_loss_and_grad

CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.25}
PULL = "-(logp * adv - strength / 2 * (logp - logq) * (logp - logq))"
WRITTEN: dict[str, tuple[str, dict[str, float], dict[str, float]]] = {
    "cross_entropy": ("-adv * logp", {}, {}),
    "importance_sampling": ("-ratio * adv", {}, {}),
    "ppo": ("-min(ratio * adv, clip(ratio, low, high) * adv)", CLIP, {"low": 0.8, "high": 1.25}),
    "cispo": ("-stop(clip(ratio, low, high)) * logp * adv", CLIP, {"low": 0.8, "high": 1.25}),
    "dro": (PULL, {"beta": 0.3}, {"strength": 0.3}),
    "stable_reinforce": (PULL, {"kl_coeff": 0.3}, {"strength": 0.3}),
    "gspo": (
        """
        s = stop(exp(mean(logp - logq))) * exp(logp - stop(logp))
        -min(s * adv, clip(s, low, high) * adv)
        """,
        CLIP,
        {"low": 0.8, "high": 1.25},
    ),
}


@st.composite
def sequences(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Logprobs with ratios on both sides of the clips, at 1 and at the bounds; advantages of both
    signs and 0; some tokens that were not sampled."""
    size = draw(st.integers(1, 7))
    drift = st.sampled_from([0.0, np.log(0.8), np.log(1.25)]) | st.floats(-1.0, 1.0)
    advantage = st.sampled_from([0.0, 1.0, -1.0]) | st.floats(-3.0, 3.0, allow_subnormal=False)

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    logq_T, mask_T = column(st.floats(-6.0, -0.01)), column(st.sampled_from([0.0, 1.0, 1.0]))
    return {
        "logq": logq_T,
        "logp": logq_T + column(drift),
        "adv": column(advantage) * mask_T,
        "mask": mask_T,
    }


def test_all_are_written() -> None:
    assert WRITTEN.keys() == LOSSES.keys()


@pytest.mark.parametrize("name", WRITTEN)
@given(data=sequences())
def test_a_builtin_loss_as_an_expression(name: str, data: dict[str, np.ndarray]) -> None:
    text, config, params = WRITTEN[name]
    mask_T = data["mask"]
    # The services sum over all tokens of a datum; where nothing is trained on, the logprobs of a
    # pull to the sampler are the trainer's own (`TrainingDatum.anchored`).
    logq_T = np.where(mask_T > 0, data["logq"], data["logp"])
    inputs = {"logprobs": logq_T, "advantages": data["adv"]}
    if name == "cross_entropy":
        inputs = {"weights": data["adv"]}
    if name == "gspo":
        inputs["sequence_ratio_mask"] = mask_T
    expected, expected_T = builtin_loss_and_grad(name, config, data["logp"], inputs)
    loss, grad_T = loss_and_grad(program(text, params), data, mask_T)
    assert loss == pytest.approx(expected, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(grad_T, expected_T, rtol=1e-12, atol=1e-12)
