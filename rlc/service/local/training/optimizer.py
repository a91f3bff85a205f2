"""AdamW with decoupled weight decay and clipping, on one flat vector of P parameters."""

from __future__ import annotations

import math

import torch
from attrs import define
from tinker import types
from torch import Tensor

from rlc.service.errors import ServiceError


@define(eq=False)
class AdamW:
    """Parameters, the gradient that accumulates for them, and Adam's moments."""

    parameters_P: Tensor
    gradient_P: Tensor
    mean_P: Tensor
    square_P: Tensor
    steps: int = 0

    @classmethod
    def over(cls, parameters_P: Tensor) -> AdamW:
        """Make an optimiser that has not stepped yet."""
        gradient_P, mean_P, square_P = (torch.zeros_like(parameters_P) for _ in range(3))
        return cls(parameters_P, gradient_P, mean_P, square_P)

    @torch.no_grad()
    def step(self, params: types.AdamParams) -> float:
        """Step, clear the gradient, and return its norm before clipping.

        Clipping multiplies by ``min(1, max_norm / (norm + 1e-6))``, as PyTorch's does. Raise
        ServiceError if the gradient is not finite: it is cleared then, and nothing else changes.
        """
        norm = float(self.gradient_P.double().norm())
        if not math.isfinite(norm):
            self.gradient_P.zero_()
            raise ServiceError("The gradient is not finite, so no optimiser step was taken.")
        if params.grad_clip_norm > 0:
            self.gradient_P.mul_(min(1.0, params.grad_clip_norm / (norm + 1e-6)))
        self.steps += 1
        self.mean_P.lerp_(self.gradient_P, 1 - params.beta1)
        self.square_P.mul_(params.beta2).addcmul_(
            self.gradient_P, self.gradient_P, value=1 - params.beta2
        )
        unbiased_mean = 1 - params.beta1**self.steps
        unbiased_square = math.sqrt(1 - params.beta2**self.steps)
        spread_P = self.square_P.sqrt().div_(unbiased_square).add_(params.eps)
        self.parameters_P.mul_(1 - params.learning_rate * params.weight_decay)
        self.parameters_P.addcdiv_(
            self.mean_P, spread_P, value=-params.learning_rate / unbiased_mean
        )
        self.gradient_P.zero_()
        return norm


def check(params: types.AdamParams) -> None:
    """Raise ServiceError if a setting is out of range."""
    rules = {
        "learning_rate": params.learning_rate >= 0,
        "beta1": 0 <= params.beta1 < 1,
        "beta2": 0 <= params.beta2 < 1,
        "eps": params.eps > 0,
        "weight_decay": params.weight_decay >= 0,
        "grad_clip_norm": params.grad_clip_norm >= 0,
    }
    for name, holds in rules.items():
        value = getattr(params, name)
        if not (holds and math.isfinite(value)):
            raise ServiceError(f"AdamParams: {name} = {value} is out of range.")
