"""What a model would answer of which every token has one logprob, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from tinker import types

from rlc.algo.served import builtin_loss_and_grad
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.losses import combined

LOGPROB = -0.5  # of every token


def output_of(
    data: Sequence[types.Datum],
    loss_fn: str | CustomLoss,
    config: Mapping[str, float | str] | None,
) -> types.ForwardBackwardOutput:
    """What a model would answer of which every token has LOGPROB. The loss is computed, because
    rlc compares it with its formula before it trains."""
    outputs = [{"logprobs": _logprobs(datum.model_input.length)} for datum in data]
    return types.ForwardBackwardOutput(
        loss_fn_output_type="TensorData",
        loss_fn_outputs=outputs,
        metrics=_metrics(data, loss_fn)
        if isinstance(loss_fn, CustomLoss)
        else {"loss:sum": _loss(data, loss_fn, config)},
    )


@cache
def _logprobs(length: int) -> types.TensorData:
    return types.TensorData(
        data=np.full(length, LOGPROB, np.float32), dtype="float32", shape=[length]
    )


def _metrics(data: Sequence[types.Datum], loss: CustomLoss) -> dict[str, float]:
    """The metrics of a custom loss, which are those of the server's."""
    arrays = [loss.read_inputs(datum, f"Datum {i}") for i, datum in enumerate(data)]
    lengths = [a["target_tokens"].size for a in arrays]
    summed, metrics = loss.total(torch.full((sum(lengths),), LOGPROB), arrays, range(len(data)))
    return combined({"loss:sum": float(summed), **metrics}, len(data))


def _loss(
    data: Sequence[types.Datum], name: str, config: Mapping[str, float | str] | None
) -> float:
    """Of all datums as one, since the losses that are asked for here go token by token."""
    settings = {key: float(value) for key, value in (config or {}).items()}
    inputs = {
        key: np.concatenate([datum.loss_fn_inputs[key].to_numpy() for datum in data])
        for key in data[0].loss_fn_inputs
        if key not in ("mask", "target_tokens")
    }
    tokens = sum(datum.model_input.length for datum in data)
    return builtin_loss_and_grad(name, settings, np.full(tokens, LOGPROB), inputs)[0]
