"""Losses, those of one's own too, and steps of AdamW, by what they do to logprobs.

The first step of Adam moves each weight by the learning rate, whatever the gradient's size; small
enough, it moves the logprobs by some d. What other settings and gradients in proportion make of d
follows from Adam's formula alone, so that it can be checked without seeing a weight.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from tinker import types
from tinker.types.optimizer import DimuonOptimizerConfig, DimuonParams

from rlc.algo import LOSSES, Floats, builtin_loss_and_grad
from rlc.catalog import LIKELIHOOD, service_loss_traits
from rlc.service.conform.measures import DiffersError
from rlc.service.conform.probe import (
    EXACT,
    PROMPT,
    Probe,
    config_of,
    datum,
    inputs_of,
    likelihood,
    outputs,
    recorded,
    sequences,
)
from rlc.service.conform.records import Check, check

_VALUE = 2e-3  # of a loss, in parts of its terms
_GRADIENT = 0.03  # of a gradient's norm, which may be computed in another precision


def loss(name: str, probe: Probe) -> None:
    """Compare a loss and its gradient with the float64 formula.

    The formula's slopes by the logprobs, as weights of the log-likelihood, give the same gradient
    with the other sign: both together must vanish.
    """
    client = probe.train()
    is_recorded = service_loss_traits(name).recorded
    replies = _replies(probe, client) if is_recorded else []
    plain = [datum([*PROMPT, *r.tokens], _weights(len(r.tokens))) for r in replies] or likelihood()
    scored = outputs(probe.forward(client, plain))
    inputs = [inputs_of(name, logprobs_T, i) for i, logprobs_T in enumerate(scored)]
    if is_recorded:
        for own, reply in zip(inputs, replies, strict=True):
            own["advantages"][: -len(reply.tokens)] = 0.0
        data = [recorded(reply, own) for reply, own in zip(replies, inputs, strict=True)]
    else:
        data = [datum(tokens, own) for tokens, own in zip(sequences(), inputs, strict=True)]
    config = config_of(name)
    passed = probe.forward(client, data, name, config, backward=True)
    alone = probe.step(client, 0.0)
    expected, size, slopes = 0.0, 0.0, list[Floats]()
    for i, (logprobs_T, own) in enumerate(zip(outputs(passed), inputs, strict=True)):
        if is_recorded:
            own = {**own, "sampled": _sampled(len(logprobs_T), len(replies[i].tokens))}
        value, slope_T = builtin_loss_and_grad(name, config, logprobs_T, own)
        expected, size = expected + value, size + float(np.abs(slope_T).sum())
        slopes.append(slope_T)
    reported = passed.metrics["loss:sum"]
    scale = max(size, abs(expected))
    probe.within(
        f"{name} and its formula ({reported:.6g} and {expected:.6g}), in parts of it,",
        abs(reported - expected) / scale,
        _VALUE,
    )
    if alone is None:
        probe.notes.append("the server reports no grad_norm: its gradient was not compared")
        return
    probe.that(alone > 0, "its gradient is zero")
    probe.forward(client, data, name, config, backward=True)
    tokens = [[*PROMPT, *reply.tokens] for reply in replies] or sequences()
    opposite = [datum(t, {"weights": s}) for t, s in zip(tokens, slopes, strict=True)]
    probe.forward(client, opposite, LIKELIHOOD.name, backward=True)
    left = probe.step(client, 0.0)
    probe.within(
        "the gradient and the formula's, in parts of it,", left / max(alone, 1e-12), _GRADIENT
    )


def _replies(probe: Probe, client: object) -> list[types.SampledSequence]:
    sampler = probe.sampler(client, record_stability_info=True)  # type: ignore[arg-type]
    return [probe.sample(sampler, seed=seed).sequences[0] for seed in (1, 2)]


def _weights(reply: int) -> dict[str, Floats]:
    return {"weights": np.ones(len(PROMPT) + reply - 1)}


def _sampled(length: int, reply: int) -> Floats:
    return (np.arange(length) >= length - reply).astype(np.float64)


def _check(name: str) -> Check:
    traits = service_loss_traits(name)
    return Check(
        f"losses.{name}",
        f"{name} and its gradient are those of the float64 formula",
        ("TrainingClient.forward_backward",),
        partial(loss, name),
        required=traits.published and not traits.per_sequence,
    )


CHECKS: list[Check] = [_check(name) for name in LOSSES]


def _weighted(logprobs: Any, weights: Any) -> Any:
    """The log-likelihood, written out."""
    loss = -(logprobs * weights).sum()
    return loss, {"custom/weighted:sum": loss}


@check(CHECKS, "custom.in_client", "TrainingClient.forward_backward_custom")
def in_client(probe: Probe) -> None:
    """A loss that the SDK computes itself has its value and its gradient."""
    client, data = probe.train(), likelihood()
    expected = probe.forward(client, data, backward=True).metrics["loss:sum"]
    norm = probe.step(client, 0.0)

    def summed(data: Any, logprobs: Any) -> Any:
        return -sum(row.sum() for row in logprobs), {"datums": float(len(data))}

    metrics = probe.custom(client, data, summed)
    probe.within(
        "a custom loss and the same one of the server, in parts of it,",
        abs(metrics["loss:sum"] - expected) / abs(expected),
        EXACT,
    )
    found = probe.step(client, 0.0)
    if norm:
        probe.within("norms of their gradients, in parts of them,", abs(found - norm) / norm, 0.02)


@check(
    CHECKS,
    "custom.on_server",
    "ServiceClient.create_custom_loss",
    "TrainingClient.forward_backward_custom",
    required=False,
)
def on_server(probe: Probe) -> None:
    """A loss that was traced once has its value, its gradient and its metrics."""
    client, data = probe.train(), likelihood(scale=0.5)
    expected = probe.forward(client, data, backward=True).metrics["loss:sum"]
    norm = probe.step(client, 0.0)
    ranks: Any = {"logprobs": 1, "weights": 1}
    handle = probe.get(probe.bench.sdk.create_custom_loss(_weighted, ranks))
    where = "in the client" if handle.loss_id is None else "on the server"
    probe.notes.append(f"computed {where}")
    metrics = probe.custom(client, data, handle)
    for name in ("loss:sum", "custom/weighted:sum"):
        if name not in metrics:
            probe.that(False, f"the metric {name} is not there")
            continue
        probe.within(
            f"{name} and the same loss of the server, in parts of it,",
            abs(metrics[name] - expected) / abs(expected),
            EXACT,
        )
    found = probe.step(client, 0.0)
    if norm:
        probe.within("norms of their gradients, in parts of them,", abs(found - norm) / norm, 0.02)


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
