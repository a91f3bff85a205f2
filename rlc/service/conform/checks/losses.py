"""Every loss of the protocol: its value, and its gradient."""

from __future__ import annotations

from functools import partial

import numpy as np
from tinker import types

from rlc.algo.losses import LOSSES, loss_and_grad
from rlc.algo.ragged import Floats
from rlc.catalog.builtins.losses import LIKELIHOOD
from rlc.catalog.index import service_loss_traits
from rlc.service.conform.data import (
    PROMPT,
    config_of,
    datum,
    inputs_of,
    likelihood,
    recorded,
    sequences,
)
from rlc.service.conform.probe import Probe, outputs
from rlc.service.conform.records import Check

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
        value, slope_T = loss_and_grad(name, config, logprobs_T, own)
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


CHECKS = [_check(name) for name in LOSSES]
