"""Steps of AdamW, by what they do to logprobs.

The first step of Adam moves each weight by the learning rate, whatever the gradient's size; small
enough, it moves the logprobs by some d. What other settings and gradients in proportion make of d
follows from Adam's formula alone, so that it can be checked without seeing a weight.
"""

from __future__ import annotations

import math

import numpy as np
from tinker.types.optimizer import DimuonOptimizerConfig, DimuonParams

from rlc.algo.ragged import Floats
from rlc.service.conform.checks import check
from rlc.service.conform.data import likelihood
from rlc.service.conform.measures import DiffersError
from rlc.service.conform.probe import Probe
from rlc.service.conform.records import Check

CHECKS: list[Check] = []

_MOVE = 0.05  # nats that the first step moves a logprob by, at most
_ALLOWED = 0.08  # of d: the model is only nearly linear


def moved(probe: Probe, *steps: tuple[float, float, dict[str, float]]) -> Floats:
    """How steps move the logprobs of a fresh adapter.

    A step is the scale of its gradient, 0 for none, its learning rate, and other settings.
    """
    client = probe.train()
    before = np.concatenate(probe.logprobs(client))
    for scale, rate, settings in steps:
        probe.forward(client, likelihood(scale=scale), backward=True)
        probe.step(client, rate, **settings)
    return np.concatenate(probe.logprobs(client)) - before


def rate_of(probe: Probe) -> float:
    """A learning rate whose first step moves the logprobs by about `_MOVE`."""
    if probe.bench.rate is None:
        first = 1e-4
        size = float(np.abs(moved(probe, (1.0, first, {}))).max())
        if size == 0:
            raise DiffersError("a step changes nothing")
        probe.bench.rate = first * _MOVE / size
    return probe.bench.rate


def ratio(probe: Probe, *steps: tuple[float, float, dict[str, float]]) -> float:
    """How far steps move the logprobs, in parts of what the first step of Adam does."""
    one = moved(probe, (1.0, rate_of(probe), {}))
    return float(moved(probe, *steps) @ one / (one @ one))


def _adam(
    probe: Probe, what: str, expected: float, *steps: tuple[float, float, dict[str, float]]
) -> None:
    found = ratio(probe, *steps)
    probe.within(
        f"{what}: moves of {found:.3f} and {expected:.3f} times the first step's",
        abs(found - expected),
        _ALLOWED,
    )


@check(CHECKS, "optimizer.gradient_size", "TrainingClient.optim_step")
def gradient_size(probe: Probe) -> None:
    """The first step of Adam does not depend on the size of the gradient, but on its sign."""
    rate = rate_of(probe)
    _adam(probe, "a gradient of twice the size", 1.0, (2.0, rate, {}))
    _adam(probe, "a gradient of the other sign", -1.0, (-1.0, rate, {}))


@check(CHECKS, "optimizer.learning_rate", "TrainingClient.optim_step")
def learning_rate(probe: Probe) -> None:
    """A step is as large as its learning rate."""
    rate = rate_of(probe)
    _adam(probe, "half the learning rate", 0.5, (1.0, rate / 2, {}))
    _adam(probe, "a learning rate of 0", 0.0, (1.0, 0.0, {}))


@check(CHECKS, "optimizer.moments", "TrainingClient.optim_step")
def moments(probe: Probe) -> None:
    """beta1 and beta2 are honoured, and the moments are without bias."""
    rate, scale = rate_of(probe), -0.5
    for beta1, beta2 in ((0.9, 0.95), (0.0, 0.9)):
        mean = (beta1 * (1 - beta1) + (1 - beta1) * scale) / (1 - beta1**2)
        square = (beta2 * (1 - beta2) + (1 - beta2) * scale**2) / (1 - beta2**2)
        betas = {"beta1": beta1, "beta2": beta2}
        _adam(
            probe,
            f"beta1 = {beta1}, beta2 = {beta2}",
            mean / math.sqrt(square),
            (1.0, 0.0, betas),
            (scale, rate, betas),
        )


@check(CHECKS, "optimizer.clipping", "TrainingClient.optim_step")
def clipping(probe: Probe) -> None:
    """grad_clip_norm bounds the gradient; 0 leaves it alone."""
    rate = rate_of(probe)
    betas = {"beta1": 0.0, "beta2": 0.9}
    clipped = {**betas, "grad_clip_norm": 1e-4}
    _adam(
        probe,
        "two gradients that are clipped alike",
        1.0,
        (1.0, 0.0, clipped),
        (0.25, rate, clipped),
    )
    free = 0.25 / math.sqrt((0.9 * 0.1 + 0.1 * 0.0625) / (1 - 0.9**2))
    _adam(probe, "two gradients that are not clipped", free, (1.0, 0.0, betas), (0.25, rate, betas))


@check(CHECKS, "optimizer.weight_decay", "TrainingClient.optim_step")
def weight_decay(probe: Probe) -> None:
    """weight_decay shrinks the weights by its share of the learning rate, beside the gradient."""
    rate = rate_of(probe)
    betas = {"beta1": 0.0, "beta2": 0.999}
    decay = {**betas, "weight_decay": 0.3 / rate}
    # Both factors of an adapter shrink, and a gradient of 0 moves nothing besides.
    _adam(probe, "a decay of 0.3", 0.7**2, (1.0, rate, betas), (0.0, rate, decay))


@check(CHECKS, "optimizer.eps", "TrainingClient.optim_step")
def eps(probe: Probe) -> None:
    """A large eps keeps the weights where they are."""
    _adam(probe, "eps = 1e8", 0.0, (1.0, rate_of(probe), {"eps": 1e8}))


@check(CHECKS, "optimizer.dimuon", "ServiceClient.create_lora_training_client", required=False)
def dimuon(probe: Probe) -> None:
    """A client may choose Dimuon as its optimiser."""
    client = probe.train(optimizer=DimuonOptimizerConfig())
    before = probe.forward(client, likelihood(), backward=True).metrics["loss:sum"]
    probe.get(client.optim_step(DimuonParams(learning_rate=1e-4)))
    after = probe.forward(client, likelihood()).metrics["loss:sum"]
    probe.that(after < before, "the loss is not lower after a step")
