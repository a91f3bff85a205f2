"""The gradients of an engine that averages, of passes written for it, are those of Tinker's sums.

The engine is SkyRL's for JAX, as a formula: the loss of a datum over the larger of the sum of its
weights and 1e-9, the mean of that over all datums of a step. Dimensions: T targets of a datum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skyrl_losses import Floats, array, divisor, terms
from tinker import types

from rlc.algo import builtin_loss_and_grad
from rlc.catalog import provider
from rlc.service.bridge.sums import ModelPass, summed, with_sum
from rlc.service.interface import ServiceError

LOSSES = provider("skyrl").losses or ()
CLIPS = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}
CONFIG: dict[str, Mapping[str, float | str] | None] = {"ppo": CLIPS, "cispo": CLIPS}


def averaged(
    step: Sequence[ModelPass], logprobs: Sequence[Sequence[Floats]]
) -> tuple[list[list[Floats]], list[list[Floats]]]:
    """The losses of the tokens that the engine reports, and the gradient of a whole step."""
    datums = sum(len(one.data) for one in step)
    losses, slopes = [], []
    for one, lps in zip(step, logprobs, strict=True):
        told, moved = [], []
        for datum, lp_T in zip(one.data, lps, strict=True):
            inputs = {name: array(tensor) for name, tensor in datum.loss_fn_inputs.items()}
            loss_T, slope_T = terms(one.loss, one.config, inputs, lp_T)
            told.append(loss_T)
            moved.append(slope_T / divisor(inputs, lp_T) / datums)
        losses.append(told)
        slopes.append(moved)
    return losses, slopes


def output(losses: Sequence[Floats], logprobs: Sequence[Floats]) -> types.ForwardBackwardOutput:
    told = [
        {
            "elementwise_loss": types.TensorData.from_numpy(loss_T.astype(np.float32)),
            "logprobs": types.TensorData.from_numpy(lp_T.astype(np.float32)),
        }
        for loss_T, lp_T in zip(losses, logprobs, strict=True)
    ]
    return types.ForwardBackwardOutput("scalar", told, {})


numbers = st.floats(-3.0, 3.0, width=32, allow_subnormal=False)
weights = st.one_of(st.just(0.0), numbers)


@st.composite
def datums(draw: st.DrawFn, loss: str) -> tuple[types.Datum, Floats]:
    """A datum, and the learner's logprobs: near the sampler's, so that ratios fall on both sides
    of the clips, and never on one."""
    size = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype=np.float32)

    sampler_T = column(st.floats(-5.0, -0.125, width=32))
    drift_T = column(st.sampled_from([-0.9, -0.2, 0.0, 0.2, 0.9]))
    inputs: dict[str, Any] = {"target_tokens": np.arange(size)}
    if loss == "cross_entropy":
        if draw(st.booleans()):
            inputs["weights"] = column(weights)
    else:
        inputs |= {"logprobs": sampler_T, "advantages": column(weights)}
    datum = types.Datum(types.ModelInput.from_ints(list(range(size))), inputs)
    return datum, np.asarray(sampler_T + drift_T, dtype=np.float64)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[ModelPass, list[Floats]]]:
    """The passes of one step, of losses that may differ, each with the learner's logprobs."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        loss = draw(st.sampled_from(LOSSES))
        drawn = draw(st.lists(datums(loss), min_size=1, max_size=3))
        config = CONFIG.get(loss)
        found.append((ModelPass(loss, config, [d for d, _ in drawn]), [lp for _, lp in drawn]))
    return found


def expected(one: ModelPass, logprobs: Sequence[Floats]) -> tuple[float, list[Floats]]:
    """Tinker's sum, and its gradient by the logprobs."""
    total, slopes = 0.0, []
    for datum, lp_T in zip(one.data, logprobs, strict=True):
        inputs = {name: array(tensor) for name, tensor in datum.loss_fn_inputs.items()}
        if one.loss == "cross_entropy":
            inputs.setdefault("weights", np.ones_like(lp_T))
        config: Any = one.config
        value, slope_T = builtin_loss_and_grad(one.loss, config, lp_T, inputs)
        total += value
        slopes.append(slope_T)
    return total, slopes


@given(step=steps())
def test_the_gradient_of_a_step_is_that_of_the_sum_of_its_passes(
    step: list[tuple[ModelPass, list[Floats]]],
) -> None:
    count = sum(len(one.data) for one, _ in step)
    sent = [summed(one, count) for one, _ in step]
    losses, slopes = averaged(sent, [lps for _, lps in step])
    for (one, lps), told, moved in zip(step, losses, slopes, strict=True):
        total, wanted = expected(one, lps)
        for slope_T, wanted_T in zip(moved, wanted, strict=True):
            np.testing.assert_allclose(slope_T, wanted_T, rtol=1e-5, atol=1e-6)
        answer = with_sum(output(told, lps), one, count)
        size = sum(float(np.abs(loss_T).sum()) for loss_T in told) + 1.0
        assert answer.metrics["loss:sum"] == pytest.approx(total, rel=1e-5, abs=1e-6 * size)
        for record, lp_T in zip(answer.loss_fn_outputs, lps, strict=True):
            assert record.keys() == {"logprobs"}
            np.testing.assert_array_equal(record["logprobs"].to_numpy(), lp_T.astype(np.float32))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_as_they_are_the_gradients_would_be_others(sign: float) -> None:
    """What this is for: the engine's own gradient of a likelihood with weights, above all
    negative ones."""
    lp_T = np.array([-1.0, -2.0])
    weighted = np.array([sign, sign], dtype=np.float32)
    inputs: dict[str, Any] = {"target_tokens": np.array([1, 2]), "weights": weighted}
    given = ModelPass(
        "cross_entropy", None, [types.Datum(types.ModelInput.from_ints([0, 1]), inputs)]
    )
    (moved,) = averaged([given], [[lp_T]])[1]
    (wanted,) = expected(given, [lp_T])[1]
    assert np.abs(moved[0] / wanted).tolist() == pytest.approx(
        [0.5, 0.5] if sign > 0 else [1e9] * 2
    )


def test_what_the_engine_cannot_compute_is_refused() -> None:
    lone = {"target_tokens": np.array([1])}
    several = {"target_tokens": np.array([[1, 2]]), "weights": np.ones((1, 2), dtype=np.float32)}

    def one(loss: str, inputs: dict[str, Any]) -> ModelPass:
        return ModelPass(loss, None, [types.Datum(types.ModelInput.from_ints([0]), inputs)])

    with pytest.raises(ServiceError, match=r"computes no `dro`: it has cross_entropy, .*cispo"):
        summed(one("dro", lone), 1)
    with pytest.raises(ServiceError, match="one target in a place"):
        summed(one("cross_entropy", several), 1)
    with pytest.raises(ServiceError, match="has no `logprobs`, which `ppo` needs"):
        summed(one("ppo", lone), 1)
    for wrong in ([1.0, 1.0], [np.nan]):  # which it would pad, or train on
        weighted = {**lone, "weights": np.array(wrong, dtype=np.float32)}
        with pytest.raises(ServiceError, match="not a number for each of its targets"):
            summed(one("cross_entropy", weighted), 1)
    with pytest.raises(ServiceError, match="`ppo` has no setting `clip`"):
        summed(ModelPass("ppo", {"clip": 0.2}, one("ppo", lone).data), 1)
