"""Losses that are summed, on an engine that averages them: SkyRL's for JAX.

It divides the loss of a datum by the sum of its weights (of nothing if that is 0 or less), and the
gradient of a step by the number of its datums. Without weights the first divisor is the number of
targets, so that advantages times both divisors give the sum exactly; a log-likelihood with weights
is CISPO with a ratio of 1 and the weights as advantages. Read in SkyRL 0.3.0 and 0.4.0
(``backends/jax.py``, ``tinker/loss_fns.py``), and compared with the embedded engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from tinker import types

from rlc.catalog import LIKELIHOOD, UNIT_RATIO, provider
from rlc.service.interface import ServiceError

LossConfig = Mapping[str, float | str] | None


@frozen(eq=False)
class ModelPass:
    """Datums of one loss, as they are sent."""

    loss: str
    config: LossConfig
    data: Sequence[types.Datum]


def summed(given: ModelPass, datums: int) -> ModelPass:
    """Return the pass whose gradient is that of ``given``, where a step of ``datums`` datums is
    averaged. Raise ServiceError for a loss that the engine does not have."""
    scales = [scale * datums for scale in lengths(given)]
    if given.loss == LIKELIHOOD.name:
        data = [_likelihood(*one) for one in zip(given.data, scales, strict=True)]
        return ModelPass(UNIT_RATIO.name, UNIT_RATIO.config, data)
    losses = provider("skyrl").losses or ()
    if given.loss not in losses:
        why = f"SkyRL's engine for JAX computes no `{given.loss}`: it has {', '.join(losses)}"
        raise ServiceError(why)
    data = [_of_ratios(*one) for one in zip(given.data, scales, strict=True)]
    return ModelPass(given.loss, given.config, data)


def lengths(given: ModelPass) -> list[int]:
    """Return the number of targets of each datum. Raise ServiceError for several in one place."""
    shapes = [datum.loss_fn_inputs["target_tokens"].to_numpy().shape for datum in given.data]
    if any(len(shape) != 1 for shape in shapes):
        raise ServiceError("SkyRL takes one target in a place, and no likely ones beside it")
    return [shape[0] for shape in shapes]


def _likelihood(datum: types.Datum, scale: float) -> types.Datum:
    inputs = datum.loss_fn_inputs
    length = inputs["target_tokens"].to_numpy().shape[0]
    weights = inputs.get("weights")
    weights_T = np.ones(length) if weights is None else weights.to_numpy()
    return _scaled(datum, np.zeros(length), weights_T, scale)


def _of_ratios(datum: types.Datum, scale: float) -> types.Datum:
    inputs = datum.loss_fn_inputs
    if missing := {"logprobs", "advantages"} - inputs.keys():
        raise ServiceError(f"a datum has no `{min(missing)}`, which the loss needs")
    return _scaled(datum, inputs["logprobs"].to_numpy(), inputs["advantages"].to_numpy(), scale)


def _scaled(datum: types.Datum, logprobs_T: Any, advantages_T: Any, scale: float) -> types.Datum:
    scaled_T = np.asarray(advantages_T, dtype=np.float64) * scale
    inputs: dict[str, Any] = {
        "target_tokens": datum.loss_fn_inputs["target_tokens"],
        "logprobs": np.asarray(logprobs_T, dtype=np.float32),
        "advantages": scaled_T.astype(np.float32),
    }
    return types.Datum(datum.model_input, inputs)


def with_sum(
    output: types.ForwardBackwardOutput, given: ModelPass, datums: int
) -> types.ForwardBackwardOutput:
    """Return the answer to a :func:`summed` pass as Tinker gives it: logprobs, and the loss."""
    total = 0.0
    for scale, one in zip(lengths(given), output.loss_fn_outputs, strict=True):
        total += float(one["elementwise_loss"].to_numpy().sum(dtype=np.float64)) / (scale * datums)
    kept = [{"logprobs": one["logprobs"]} for one in output.loss_fn_outputs]
    return types.ForwardBackwardOutput(
        loss_fn_output_type=output.loss_fn_output_type,
        loss_fn_outputs=kept,
        metrics={**output.metrics, "loss:sum": total},
    )
