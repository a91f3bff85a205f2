"""The losses of SkyRL's engine for JAX, as formulas of NumPy. Dimensions: T targets of a datum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tinker import types

Floats = np.ndarray[Any, np.dtype[np.float64]]
_CLIPS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


def array(tensor: types.TensorData) -> Floats:
    return np.asarray(tensor.to_numpy(), dtype=np.float64)


def terms(
    loss: str, config: Mapping[str, Any] | None, inputs: Mapping[str, Floats], lp_T: Floats
) -> tuple[Floats, Floats]:
    """The losses of the targets, times their weights, and the slopes of these in ``lp_T``."""
    weights_T = inputs.get("weights", np.ones_like(lp_T))
    loss_T, slope_T = _unweighted(loss, _CLIPS | dict(config or {}), inputs, lp_T)
    masked = weights_T != 0
    return np.where(masked, loss_T * weights_T, 0), np.where(masked, slope_T * weights_T, 0)


def divisor(inputs: Mapping[str, Floats], lp_T: Floats) -> float:
    """What the loss of a datum is divided by."""
    return max(float(inputs.get("weights", np.ones_like(lp_T)).sum()), 1e-9)


def _unweighted(
    loss: str, config: Mapping[str, Any], inputs: Mapping[str, Floats], lp_T: Floats
) -> tuple[Floats, Floats]:
    if loss == "cross_entropy":
        return -lp_T, -np.ones_like(lp_T)
    ratio_T, advantages_T = np.exp(lp_T - inputs["logprobs"]), inputs["advantages"]
    if loss == "importance_sampling":
        return -ratio_T * advantages_T, -ratio_T * advantages_T
    held_T = np.clip(ratio_T, config["clip_low_threshold"], config["clip_high_threshold"])
    if loss == "cispo":
        return -held_T * lp_T * advantages_T, -held_T * advantages_T
    assert loss == "ppo"
    free_T, held_T = ratio_T * advantages_T, held_T * advantages_T
    return -np.minimum(free_T, held_T), -np.where(free_T <= held_T, free_T, 0.0)
