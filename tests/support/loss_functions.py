"""The built-in losses as a user would write them, for comparison with the built-in ones.

The sampler's logprobs are called ``sampler``: ``logprobs`` are the trainer's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from attrs import frozen
from tinker import types
from torch import Tensor

LOW, HIGH = 0.8, 1.2
Ranks = dict[str, Literal[0, 1, 2]]


@frozen
class Written:
    """A loss as a function, and the settings of the built-in one."""

    fn: Callable[..., Any]
    config: dict[str, float] | None

    @property
    def ranks(self) -> Ranks:
        names = self.fn.__code__.co_varnames[: self.fn.__code__.co_argcount]
        return dict.fromkeys(names, 1)


def cross_entropy(logprobs: Tensor, weights: Tensor) -> Any:
    return -(logprobs * weights).sum(), {}


def importance_sampling(logprobs: Tensor, sampler: Tensor, advantages: Tensor) -> Any:
    ratio = torch.exp(logprobs - sampler)
    return -(ratio * advantages).sum(), {"custom/ratio:mean": ratio.mean()}


def ppo(logprobs: Tensor, sampler: Tensor, advantages: Tensor) -> Any:
    ratio = torch.exp(logprobs - sampler)
    clipped = torch.clamp(ratio, LOW, HIGH)
    outside = ((ratio < LOW) | (ratio > HIGH)).float()
    loss = -torch.minimum(ratio * advantages, clipped * advantages).sum()
    return loss, {"custom/clipped:sum": outside.sum()}


def cispo(logprobs: Tensor, sampler: Tensor, advantages: Tensor) -> Any:
    ratio = (logprobs.detach() - sampler).exp()
    return -(ratio.clamp(min=LOW, max=HIGH) * logprobs * advantages).sum(), {}


def dro(logprobs: Tensor, sampler: Tensor, advantages: Tensor) -> Any:
    return -(logprobs * advantages - 0.05 * (logprobs - sampler) ** 2).sum(), {}


def gspo(logprobs: Tensor, sampler: Tensor, advantages: Tensor, sequence_ratio_mask: Tensor) -> Any:
    gap = ((logprobs.detach() - sampler) * sequence_ratio_mask).sum()
    sequence = torch.exp(gap / sequence_ratio_mask.sum().clamp(min=1.0))
    ratio = sequence * torch.exp(logprobs - logprobs.detach())
    clipped = torch.clamp(ratio, LOW, HIGH)
    return -torch.minimum(ratio * advantages, clipped * advantages).sum(), {}


_CLIP = {"clip_low_threshold": LOW, "clip_high_threshold": HIGH}
WRITTEN = {
    "cross_entropy": Written(cross_entropy, None),
    "importance_sampling": Written(importance_sampling, None),
    "ppo": Written(ppo, _CLIP),
    "cispo": Written(cispo, _CLIP),
    "dro": Written(dro, {"beta": 0.1}),
    "gspo": Written(gspo, _CLIP),
}


def data_for(name: str, count: int = 6, seed: int = 0) -> list[types.Datum]:
    """Datums of different lengths for a built-in loss, the sampler's logprobs near the tiny
    model's."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(count):
        length = int(rng.integers(3, 20))
        tokens = rng.integers(40, 300, length + 1)
        arrays: dict[str, Any] = {"target_tokens": tokens[1:]}
        if name == "cross_entropy":
            arrays["weights"] = rng.random(length).astype(np.float32)
        else:
            arrays["logprobs"] = rng.normal(-9, 1.5, length).astype(np.float32)
            arrays["advantages"] = rng.normal(size=length).astype(np.float32)
        if name == "gspo":
            arrays["sequence_ratio_mask"] = (np.arange(length) >= 1).astype(np.float32)
        data.append(types.Datum(types.ModelInput.from_ints(tokens[:-1].tolist()), arrays))
    return data


def as_custom(data: Sequence[types.Datum]) -> list[types.Datum]:
    """The same datums for the written loss, with the sampler's logprobs under its name for them."""
    return [
        types.Datum(
            datum.model_input,
            {
                "sampler" if key == "logprobs" else key: value
                for key, value in datum.loss_fn_inputs.items()
            },
        )
        for datum in data
    ]
