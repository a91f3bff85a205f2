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
import numpy.typing as npt
from attrs import frozen
from tinker import types

from rlc.catalog import LIKELIHOOD, UNIT_RATIO, provider, service_settings
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
    averaged. Raise ServiceError for what the engine does not have, or would take in silence."""
    losses = provider("skyrl").losses or ()
    if given.loss not in losses:
        why = f"SkyRL's engine for JAX computes no `{given.loss}`: it has {', '.join(losses)}"
        raise ServiceError(why)
    given = complete(given)
    data = [
        _averaged(datum, given.loss, length * datums)
        for datum, length in zip(given.data, lengths(given), strict=True)
    ]
    if given.loss == LIKELIHOOD.name:
        return ModelPass(UNIT_RATIO.name, UNIT_RATIO.config, data)
    return ModelPass(given.loss, given.config, data)


def complete(given: ModelPass) -> ModelPass:
    """Return a pass with the settings of its loss that are not given: SkyRL has defaults of its
    own. Raise ServiceError for a setting that the loss does not have."""
    if given.loss not in (provider("skyrl").losses or ()):
        return given
    usual = {} if given.loss == LIKELIHOOD.name else service_settings(given.loss)
    if unknown := set(given.config or {}) - set(usual):
        raise ServiceError(f"`{given.loss}` has no setting `{min(unknown)}`")
    stated = {key: value for key, value in usual.items() if value is not None}
    return ModelPass(given.loss, {**stated, **(given.config or {})} or None, given.data)


def lengths(given: ModelPass) -> list[int]:
    """Return the number of targets of each datum. Raise ServiceError for several in one place, and
    for a datum without any."""
    found = []
    for datum in given.data:
        targets = datum.loss_fn_inputs.get("target_tokens")
        shape = () if targets is None else targets.to_numpy().shape
        if not shape:
            raise ServiceError("a datum has no `target_tokens`")
        if len(shape) > 1:
            raise ServiceError("SkyRL takes one target in a place, and no likely ones beside it")
        found.append(shape[0])
    return found


def _averaged(datum: types.Datum, loss: str, scale: float) -> types.Datum:
    """Return a datum whose loss is that of ``datum`` after a division by ``scale``."""
    targets_T = datum.loss_fn_inputs["target_tokens"]
    ones_T = np.ones(targets_T.to_numpy().shape)

    def values_of(name: str, otherwise: npt.NDArray[Any] | None = None) -> npt.NDArray[np.float64]:
        given = datum.loss_fn_inputs.get(name)
        values_T = otherwise if given is None else given.to_numpy().astype(np.float64)
        if values_T is None:
            raise ServiceError(f"a datum has no `{name}`, which `{loss}` needs")
        if values_T.shape != ones_T.shape or not np.isfinite(values_T).all():
            raise ServiceError(f"`{name}` of a datum is not a number for each of its targets")
        return values_T

    if loss == LIKELIHOOD.name:
        logprobs_T, advantages_T = 0.0 * ones_T, values_of("weights", ones_T)
    else:
        logprobs_T, advantages_T = values_of("logprobs"), values_of("advantages")
    inputs: dict[str, Any] = {
        "target_tokens": targets_T,
        "logprobs": logprobs_T.astype(np.float32),
        "advantages": (advantages_T * scale).astype(np.float32),
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
