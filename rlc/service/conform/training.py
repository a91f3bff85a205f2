"""Adapters: made, described, computed with."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from tinker import types

from rlc.catalog import LIKELIHOOD
from rlc.service.conform.probe import (
    EXACT,
    REFERENCE,
    Probe,
    datum,
    likelihood,
    outputs,
    reference_logprobs,
    sequences,
)
from rlc.service.conform.records import Check, check

CHECKS: list[Check] = []

_RATE = 1e-3
_KINDS = ("train_mlp", "train_attn", "train_unembed")


@check(
    CHECKS,
    "training.create",
    "ServiceClient.create_lora_training_client",
    "TrainingClient.get_info",
    "TrainingClient.get_tokenizer",
)
def create(probe: Probe) -> None:
    """An adapter is made as asked, and says so."""
    client = probe.train()
    info = client.get_info()
    told = (info.model_data.model_name, info.is_lora, info.lora_rank)
    probe.that(told == (probe.bench.base, True, 4), f"it says {told}")
    tokenizer = client.get_tokenizer()
    probe.that(tokenizer.decode(tokenizer.encode("Hello")) == "Hello", "its tokenizer is wrong")


@check(
    CHECKS,
    "training.logprobs",
    "TrainingClient.forward",
    "TrainingClient.save_weights_and_get_sampling_client",
)
def logprobs(probe: Probe) -> None:
    """A fresh adapter computes the base model's logprobs, as sampler and as trainer."""
    client = probe.train()
    trained = probe.logprobs(client)
    samplers = [probe.sampler(), probe.sampler(client)]
    for tokens, trained_T in zip(sequences(), trained, strict=True):
        for sampler in samplers:
            told = probe.scored(sampler, tokens)[1:]
            probe.near("logprobs of trainer and sampler", trained_T, told)
        if probe.bench.reference is not None:
            expected = reference_logprobs(probe.bench.reference, tokens)
            probe.close("the trainer's logprobs and float64", trained_T, expected, REFERENCE)


@check(CHECKS, "training.after_a_step", "TrainingClient.optim_step", "TrainingClient.forward")
def after_a_step(probe: Probe) -> None:
    """After a step the loss is lower, and a sampler of the new weights agrees with the trainer."""
    client = probe.train()
    before = probe.forward(client, likelihood(), backward=True)
    old = probe.sampler(client)
    probe.step(client, _RATE)
    after = probe.forward(client, likelihood())
    probe.that(after.metrics["loss:sum"] < before.metrics["loss:sum"], "the loss is not lower")
    tokens, new = sequences()[0], probe.sampler(client)
    probe.near(
        "logprobs of trainer and sampler after a step",
        outputs(after)[0],
        probe.scored(new, tokens)[1:],
    )
    probe.near(
        "logprobs of a snapshot, before and after the step,",
        outputs(before)[0],
        probe.scored(old, tokens)[1:],
    )


@check(
    CHECKS,
    "training.inflight",
    "TrainingClient.save_weights_and_get_sampling_client",
    required=False,
)
def inflight(probe: Probe) -> None:
    """An in-flight sampler takes over the newest weights."""
    client, tokens = probe.train(), sequences()[0]
    moving = probe.sampler(client, kind="inflight")
    probe.forward(client, likelihood(), backward=True)
    probe.step(client, _RATE)
    newest = probe.sampler(client, kind="inflight")
    expected = probe.logprobs(client)[0]
    for sampler in (moving, newest):
        probe.near(
            "logprobs of trainer and in-flight sampler", expected, probe.scored(sampler, tokens)[1:]
        )


@check(CHECKS, "training.forward", "TrainingClient.forward", "TrainingClient.forward_backward")
def forward(probe: Probe) -> None:
    """forward computes what forward_backward does, and leaves no gradient."""
    client = probe.train()
    passed = probe.forward(client, likelihood())
    norm = probe.step(client, _RATE)
    after = probe.forward(client, likelihood(), backward=True)
    for before_T, after_T in zip(outputs(passed), outputs(after), strict=True):
        probe.close("logprobs before and after a step without a gradient", before_T, after_T, EXACT)
    probe.within(
        "losses of forward and forward_backward",
        abs(passed.metrics["loss:sum"] - after.metrics["loss:sum"]),
        20 * EXACT,
    )
    if norm is not None:
        probe.within("the gradient's norm after a forward pass, and 0,", norm, 1e-9)


@check(CHECKS, "training.sums", "TrainingClient.forward_backward")
def sums(probe: Probe) -> None:
    """Losses and gradients add up over datums and requests; nothing is averaged."""
    data, client = likelihood(), probe.train()
    whole = probe.forward(client, data, backward=True)
    norm = probe.step(client, 0.0)
    parts = [probe.forward(client, [one], backward=True).metrics["loss:sum"] for one in data]
    added = probe.step(client, 0.0)
    total = whole.metrics["loss:sum"]
    probe.within(
        "the loss of two datums, and the sum of both, in parts of it,",
        abs(total - sum(parts)) / abs(total),
        EXACT,
    )
    expected = -sum(float(row.sum()) for row in outputs(whole))
    probe.within(
        "the loss, and minus the sum of its logprobs, in parts of it,",
        abs(total - expected) / abs(expected),
        EXACT,
    )
    if norm:
        probe.within(
            "the norms of both gradients, in parts of them,", abs(norm - added) / norm, 0.02
        )


@check(CHECKS, "training.several_targets", "TrainingClient.forward", required=False)
def several_targets(probe: Probe) -> None:
    """The log-likelihood takes several targets for a position."""
    tokens, client = sequences()[0], probe.train()
    own = np.array(tokens[1:], dtype=np.int64)
    arrays: Any = {
        "target_tokens": np.stack([own, own], axis=1),
        "weights": np.full((len(own), 2), 0.5, dtype=np.float32),
    }
    passed = probe.forward(client, [types.Datum(likelihood()[0].model_input, arrays)])
    alone = probe.forward(client, likelihood()[:1])
    probe.close(
        "logprobs of a target, alone and twice,",
        outputs(passed)[0],
        np.stack([outputs(alone)[0]] * 2, axis=1),
        EXACT,
    )


@check(CHECKS, "training.seeds", "ServiceClient.create_lora_training_client")
def seeds(probe: Probe) -> None:
    """A seed gives the same adapter again."""
    found = []
    for seed in (7, 7, 8):
        client = probe.train(seed=seed)
        probe.forward(client, likelihood(), backward=True)
        probe.step(client, _RATE)
        found.append(np.concatenate(probe.logprobs(client)))
    probe.near("logprobs after a step of two adapters of one seed", found[0], found[1])
    same, other = np.abs(found[0] - found[1]).max(), np.abs(found[0] - found[2]).max()
    probe.that(other > max(2 * same, 1e-6), "another seed gives the same adapter")


@check(
    CHECKS,
    "training.layers",
    "ServiceClient.create_lora_training_client",
    "RestClient.get_weights_info_by_tinker_path",
)
def layers(probe: Probe) -> None:
    """Only the layers that were asked for are trained, and the checkpoint says which."""
    moved = []
    for kind in _KINDS:
        client = probe.train(**{name: name == kind for name in _KINDS})
        probe.forward(client, likelihood(), backward=True)
        probe.step(client, _RATE)
        moved.append(np.concatenate(probe.logprobs(client)))
        saving = client.save_weights_for_sampler(kind, ttl_seconds=3600)
        path = probe.keep(probe.get(saving).path)
        info = probe.get(probe.bench.rest.get_weights_info_by_tinker_path(path))
        told = {name: getattr(info, name) for name in _KINDS}
        probe.that(told == {name: name == kind for name in _KINDS}, f"of {kind} it says {told}")
    different = all(np.abs(a - b).max() > 1e-6 for a, b in pairwise(moved))
    probe.that(different, "different layers give the same model")


@check(CHECKS, "training.refusals", "TrainingClient.forward_backward")
def refusals(probe: Probe) -> None:
    """What cannot be computed is refused, and the client goes on."""
    client, tokens = probe.train(), sequences()[0]
    length = len(tokens) - 1
    wrong: dict[str, tuple[list[types.Datum], Any, Any]] = {
        "an unknown loss": (likelihood(), "no_such_loss", None),
        "an unknown setting": (likelihood(), LIKELIHOOD.name, {"no_such_setting": 1.0}),
        "a missing input": ([datum(tokens, {})], LIKELIHOOD.name, None),
        "weights of another length": (
            [datum(tokens, {"weights": np.ones(length - 1)})],
            LIKELIHOOD.name,
            None,
        ),
        "a weight that is not a number": (
            [datum(tokens, {"weights": np.full(length, np.nan)})],
            LIKELIHOOD.name,
            None,
        ),
    }
    for what, (data, loss, config) in wrong.items():
        probe.refused(what, partial(probe.forward, client, data, loss, config, True))
    probe.refused("a rank of 3", lambda: probe.train(rank=3))
    probe.logprobs(client)
