"""What a slot of the stand-in for SkyRL asks of a model, on the engine or on its double."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen
from plain_service import PlainTrainingClient
from tinker import types

from rlc.service.engine.losses import BuiltinLoss
from rlc.service.engine.service import LocalTrainingClient

_LIKELIHOOD = BuiltinLoss.of("cross_entropy", None)


@frozen(eq=False)
class Saved:
    """The weights of a checkpoint, and for a state Adam's moments and number of steps."""

    weights: Any
    moments: tuple[Any, Any] | None
    steps: int


@frozen(eq=False)
class OnEngine:
    """What a slot asks of a model of the engine; see `OnDouble`."""

    client: LocalTrainingClient

    def run(self, data: list[types.Datum], backward: bool) -> list[types.LossFnOutput]:
        """Compute likelihoods, and with ``backward`` add their gradient."""
        return self.client.trainer.run(data, _LIKELIHOOD, backward).loss_fn_outputs

    def divide_gradient(self, by: int) -> None:
        self.client.trainer.optimizer.gradient_P.div_(by)

    def step(self, params: types.AdamParams) -> types.OptimStepResponse:
        return self.client.trainer.step(params)

    def saved(self, state: bool) -> Saved:
        adam = self.client.trainer.optimizer
        moments = (adam.mean_P.clone(), adam.square_P.clone()) if state else None
        return Saved(adam.parameters_P.detach().clone(), moments, adam.steps)

    def load(self, saved: Saved, optimizer: bool) -> None:
        adam = self.client.trainer.optimizer
        adam.parameters_P.copy_(saved.weights)
        if optimizer and saved.moments is not None:
            adam.mean_P.copy_(saved.moments[0])
            adam.square_P.copy_(saved.moments[1])
            adam.steps = saved.steps


@frozen(eq=False)
class OnDouble:
    """The same of a model of the engine's double, whose arrays are never changed in place."""

    client: PlainTrainingClient

    def run(self, data: list[types.Datum], backward: bool) -> list[types.LossFnOutput]:
        output, gradient = self.client.passed(data, "cross_entropy", None)
        if backward:
            self.client.add(gradient)
        return output.loss_fn_outputs

    def divide_gradient(self, by: int) -> None:
        if self.client.gradient is not None:
            self.client.gradient = self.client.gradient / np.float32(by)

    def step(self, params: types.AdamParams) -> types.OptimStepResponse:
        return self.client.step(params)

    def saved(self, state: bool) -> Saved:
        moments = (self.client.mean, self.client.square) if state else None
        return Saved(self.client.weights, moments, self.client.steps)

    def load(self, saved: Saved, optimizer: bool) -> None:
        self.client.weights = saved.weights
        if optimizer and saved.moments is not None:
            self.client.mean, self.client.square = saved.moments
            self.client.steps = saved.steps


ServedModel = OnEngine | OnDouble


def model_of(client: LocalTrainingClient | PlainTrainingClient) -> ServedModel:
    return OnDouble(client) if isinstance(client, PlainTrainingClient) else OnEngine(client)
