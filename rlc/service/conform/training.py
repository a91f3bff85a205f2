"""Checks of adapters, losses and steps of AdamW.

The first step of Adam moves each weight by the learning rate, whatever the size of the gradient; if
small, it moves the logprobs by some d. What other settings and gradients in proportion make of d
follows from Adam's formula alone, so that it is checked without the weights.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.request import urlopen

import numpy as np
import tinker
from safetensors.numpy import load
from tinker import types
from tinker.types.optimizer import DimuonOptimizerConfig, DimuonParams

from rlc.algo import LOSSES, Floats, builtin_loss_and_grad
from rlc.catalog import LIKELIHOOD, service_loss_traits
from rlc.service.conform.probe import (
    EXACT,
    HOUR,
    PROMPT,
    RATE,
    REFERENCE,
    REGISTERED,
    Check,
    DiffersError,
    Probe,
    check,
    config_of,
    recorded,
    reference_logprobs,
)
from rlc.service.gradients import (
    Findings,
    Pass,
    Ruler,
    cancels,
    datum,
    find_ruler,
    gradient_sums,
    inputs_of,
    likelihood,
    older_sampler,
    opposite,
    sequences,
    step_sizes,
    trained_logprobs,
)

_KINDS = ("train_mlp", "train_attn", "train_unembed")


@check(
    "training.create",
    "ServiceClient.create_lora_training_client",
    "TrainingClient.get_info",
    "TrainingClient.get_tokenizer",
)
def create(probe: Probe) -> None:
    """An adapter is made as asked, and says so."""
    client = probe.train()
    info = client.get_info()
    found = (info.model_data.model_name, info.is_lora, info.lora_rank)
    probe.that(found == (probe.bench.base, True, 4), f"it says {found}")
    tokenizer = client.get_tokenizer()
    probe.that(tokenizer.decode(tokenizer.encode("Hello")) == "Hello", "its tokenizer is wrong")


@check(
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
            found = probe.scored(sampler, tokens)[1:]
            probe.near("logprobs of trainer and sampler", trained_T, found)
        if probe.bench.reference is not None:
            expected = reference_logprobs(probe.bench.reference, tokens)
            probe.close("the trainer's logprobs and float64", trained_T, expected, REFERENCE)


@check("training.after_a_step", "TrainingClient.optim_step", "TrainingClient.forward")
def after_a_step(probe: Probe) -> None:
    """After a step the loss is lower, and a sampler of the new weights agrees with the trainer."""
    client = probe.train()
    before = probe.forward(client, likelihood(), backward=True)
    old = probe.sampler(client)
    probe.step(client, RATE)
    after = probe.forward(client, likelihood())
    probe.that(after.metrics["loss:sum"] < before.metrics["loss:sum"], "the loss is not lower")
    tokens, new = sequences()[0], probe.sampler(client)
    for what, passed, sampler in (
        ("logprobs of trainer and sampler after a step", after, new),
        ("logprobs of a snapshot, before and after the step,", before, old),
    ):
        probe.near(what, trained_logprobs(passed)[0], probe.scored(sampler, tokens)[1:])


@check("training.inflight", "TrainingClient.save_weights_and_get_sampling_client", required=False)
def inflight(probe: Probe) -> None:
    """An in-flight sampler takes over the newest weights."""
    client, tokens = probe.train(), sequences()[0]
    moving = probe.sampler(client, kind="inflight")
    probe.forward(client, likelihood(), backward=True)
    probe.step(client, RATE)
    newest = probe.sampler(client, kind="inflight")
    expected = probe.logprobs(client)[0]
    for sampler in (moving, newest):
        found = probe.scored(sampler, tokens)[1:]
        probe.near("logprobs of trainer and in-flight sampler", expected, found)


@check("training.forward", "TrainingClient.forward", "TrainingClient.forward_backward")
def forward(probe: Probe) -> None:
    """forward computes what forward_backward does, and leaves no gradient."""
    client = probe.train()
    passed = probe.forward(client, likelihood())
    norm = probe.step(client, RATE)
    after = probe.forward(client, likelihood(), backward=True)
    for before_T, after_T in zip(trained_logprobs(passed), trained_logprobs(after), strict=True):
        probe.close("logprobs before and after a step without a gradient", before_T, after_T, EXACT)
    first, second = passed.metrics["loss:sum"], after.metrics["loss:sum"]
    probe.close("losses of forward and forward_backward", first, second, 20 * EXACT)
    if norm is not None:
        probe.within("the gradient's norm after a forward pass, and 0,", norm, 1e-9)


@check("training.sums", "TrainingClient.forward_backward")
def sums(probe: Probe) -> None:
    """Losses and gradients add up over datums and requests; nothing is averaged."""
    data, client = likelihood(), probe.train()
    both = probe.forward(client, data, backward=True)
    norm = probe.step(client, 0.0)
    parts = [probe.forward(client, [one], backward=True).metrics["loss:sum"] for one in data]
    added = probe.step(client, 0.0)
    total = both.metrics["loss:sum"]
    what = "the loss of two datums, and the sum of both, in parts of it,"
    probe.relative(what, sum(parts), total, EXACT)
    expected = -sum(float(row.sum()) for row in trained_logprobs(both))
    what = "the loss, and minus the sum of its logprobs, in parts of it,"
    probe.relative(what, total, expected, EXACT)
    if norm:
        probe.relative("the norms of both gradients, in parts of them,", added, norm, 0.02)
    if (ruler := _ruler(probe, client)) is not None:
        probe.measures += probe.carry_out(gradient_sums(ruler), client)


def _ruler(probe: Probe, client: tinker.TrainingClient) -> Ruler | None:
    """Return how the gradients of a client are measured, and note it if that is not by norms."""
    if not probe.bench.rulers:
        probe.bench.rulers.append(probe.carry_out(find_ruler(), client))
    (ruler,) = probe.bench.rulers
    if ruler is None:
        probe.notes.append("neither grad_norm nor eps is there: gradients were not compared")
    elif ruler.rate is not None:
        probe.notes.append("the server reports no grad_norm: gradients were compared by steps")
    return ruler


@check(
    "training.older_sampler",
    "TrainingClient.save_weights_and_get_sampling_client",
    "TrainingClient.optim_step",
)
def an_older_sampler(probe: Probe) -> None:
    """A sample of weights that training has left behind leaves the trainer alone."""
    _add(probe, probe.carry_out(older_sampler(), probe.train()))


def _add(probe: Probe, found: Findings) -> None:
    probe.measures += found.measures
    probe.notes += found.notes


@check("training.several_targets", "TrainingClient.forward", required=False)
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
    expected = np.stack([trained_logprobs(alone)[0]] * 2, axis=1)
    probe.close(
        "logprobs of a target, alone and twice,", trained_logprobs(passed)[0], expected, EXACT
    )


@check("training.seeds", "ServiceClient.create_lora_training_client")
def seeds(probe: Probe) -> None:
    """A seed gives the same adapter again."""
    found = [probe.stepped(probe.train(seed=seed)) for seed in (7, 7, 8)]
    probe.near("logprobs after a step of two adapters of one seed", found[0], found[1])
    same, other = np.abs(found[0] - found[1]).max(), np.abs(found[0] - found[2]).max()
    probe.that(other > max(2 * same, 1e-6), "another seed gives the same adapter")


@check(
    "training.layers",
    "ServiceClient.create_lora_training_client",
    "RestClient.get_weights_info_by_tinker_path",
)
def layers(probe: Probe) -> None:
    """Only the layers that were asked for are trained, and the checkpoint says which."""
    moved = []
    for kind in _KINDS:
        client = probe.train(**{name: name == kind for name in _KINDS})
        moved.append(probe.stepped(client))
        path = probe.saved(client.save_weights_for_sampler(kind, ttl_seconds=HOUR))
        info = probe.get(probe.bench.rest.get_weights_info_by_tinker_path(path))
        found = {name: getattr(info, name) for name in _KINDS}
        probe.that(found == {name: name == kind for name in _KINDS}, f"of {kind} it says {found}")
    different = all(np.abs(a - b).max() > 1e-6 for a, b in pairwise(moved))
    probe.that(different, "different layers give the same model")


@check("training.shapes", "TrainingClient.forward")
def shapes(probe: Probe) -> None:
    """A tensor without a shape has one dimension."""
    client, data = probe.train(), likelihood()
    bare = [
        types.Datum(
            one.model_input,
            {key: types.TensorData(x.data, x.dtype) for key, x in one.loss_fn_inputs.items()},
        )
        for one in data
    ]
    found, expected = probe.forward(client, bare), probe.forward(client, data)
    for found_T, expected_T in zip(
        trained_logprobs(found), trained_logprobs(expected), strict=True
    ):
        probe.close("logprobs with and without a shape", found_T, expected_T, EXACT)


@check("training.refusals", "TrainingClient.forward_backward")
def refusals(probe: Probe) -> None:
    """What cannot be computed is refused, and the client goes on."""
    client, tokens = probe.train(), sequences()[0]
    length = len(tokens) - 1
    short, undefined = np.ones(length - 1), np.full(length, np.nan)
    name, setting = LIKELIHOOD.name, {"no_such_setting": 1.0}
    wrong: dict[str, tuple[list[types.Datum], Any, Any]] = {
        "an unknown loss": (likelihood(), "no_such_loss", None),
        "an unknown setting": (likelihood(), name, setting),
        "a missing input": ([datum(tokens, {})], name, None),
        "weights of another length": ([datum(tokens, {"weights": short})], name, None),
        "a weight that is not a number": ([datum(tokens, {"weights": undefined})], name, None),
    }
    for what, (data, loss, config) in wrong.items():
        probe.refused(what, partial(probe.forward, client, data, loss, config, True))
    probe.refused("a rank of 3", lambda: probe.train(rank=3))
    probe.logprobs(client)


_VALUE = 2e-3  # of a loss, in parts of its terms


def loss(name: str, probe: Probe) -> None:
    """Compare a loss and its gradient with the float64 formula. The formula's slopes by the
    logprobs, as weights of the log-likelihood, give the same gradient with the other sign: both
    together must vanish."""
    client = probe.train()
    traits = service_loss_traits(name)
    is_recorded = traits.recorded
    replies, tokens, plain = list[types.SampledSequence](), sequences(), likelihood()
    if is_recorded:
        sampler = probe.sampler(client, record_stability_info=True)
        replies = [probe.sample(sampler, seed=seed).sequences[0] for seed in (1, 2)]
        tokens = [[*PROMPT, *reply.tokens] for reply in replies]
        plain = [datum(t, {"weights": np.ones(len(t) - 1)}) for t in tokens]
    scored = trained_logprobs(probe.forward(client, plain))
    config = config_of(name)
    inputs = [inputs_of(name, config, logprobs_T, i) for i, logprobs_T in enumerate(scored)]
    if is_recorded:
        for own, reply in zip(inputs, replies, strict=True):
            own["advantages"][: -len(reply.tokens)] = 0.0
        data = [recorded(reply, own) for reply, own in zip(replies, inputs, strict=True)]
    else:
        data = [datum(t, own) for t, own in zip(tokens, inputs, strict=True)]
    known = [dict(own) for own in inputs]  # by the formula
    for own in known if is_recorded else ():
        sampled_T = np.arange(len(own["advantages"])) >= len(PROMPT) - 1
        own["sampled"] = sampled_T.astype(np.float64)
    passed = probe.forward(client, data, name, config)
    expected, free, size = 0.0, 0.0, 0.0
    for logprobs_T, own in zip(trained_logprobs(passed), known, strict=True):
        value, slope_T = builtin_loss_and_grad(name, config, logprobs_T, own)
        expected, size = expected + value, size + float(np.abs(slope_T).sum())
        if traits.pull is not None:
            free += builtin_loss_and_grad(name, {**config, traits.pull: 0.0}, logprobs_T, own)[0]
    reported, scale = passed.metrics["loss:sum"], max(size, abs(expected))
    what = f"{name} and its formula ({reported:.6g} and {expected:.6g}), in parts of it,"
    probe.within(what, abs(reported - expected) / scale, _VALUE)
    if config and traits.pull is None:
        unset = probe.forward(client, data, name).metrics["loss:sum"]
        what = f"{name} with its defaults, and without settings, in parts of it,"
        probe.within(what, abs(unset - reported) / scale, _VALUE)
    elif traits.pull is not None and not traits.published:  # its default is not published either
        unset = probe.forward(client, data, name).metrics["loss:sum"]
        usual = config[traits.pull] * (unset - free) / (reported - free)
        probe.notes.append(f"its {traits.pull} is {usual:.2g} where none is given")
    if (ruler := _ruler(probe, client)) is None:
        return

    def mirrored(logprobs_DT: list[Floats]) -> Pass:
        pairs = zip(logprobs_DT, known, strict=True)
        return opposite(tokens, [builtin_loss_and_grad(name, config, *pair)[1] for pair in pairs])

    own_pass = Pass(data, name, config or None)
    probe.measures.append(probe.carry_out(cancels(name, own_pass, mirrored, ruler), client))


for _loss in LOSSES:
    _traits = service_loss_traits(_loss)
    _promise = f"{_loss} and its gradient are those of the float64 formula"
    _required = _traits.published and not _traits.per_sequence
    _calls = ("TrainingClient.forward_backward",)
    REGISTERED.append(Check(f"losses.{_loss}", _promise, _calls, partial(loss, _loss), _required))


def _compare_norms(probe: Probe, client: tinker.TrainingClient, norm: float | None) -> None:
    found = probe.step(client, 0.0)
    if norm:
        probe.relative("norms of their gradients, in parts of them,", found, norm, 0.02)


def _weighted(logprobs: Any, weights: Any) -> Any:
    loss = -(logprobs * weights).sum()
    return loss, {"custom/weighted:sum": loss}


@check("custom.in_client", "TrainingClient.forward_backward_custom")
def in_client(probe: Probe) -> None:
    """A loss that the SDK computes itself has its value and its gradient."""
    client, data = probe.train(), likelihood()
    expected = probe.forward(client, data, backward=True).metrics["loss:sum"]
    norm = probe.step(client, 0.0)

    def summed(data: Any, logprobs: Any) -> Any:
        return -sum(row.sum() for row in logprobs), {"datums": float(len(data))}

    metrics = probe.custom(client, data, summed)
    what = "a custom loss and the same one of the server, in parts of it,"
    probe.relative(what, metrics["loss:sum"], expected, EXACT)
    _compare_norms(probe, client, norm)


@check(
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
        what = f"{name} and the same loss of the server, in parts of it,"
        probe.relative(what, metrics[name], expected, EXACT)
    _compare_norms(probe, client, norm)


_MOVE = 0.05  # nats by which the first step moves a logprob, at most
_ALLOWED = 0.08  # of d: the model is only nearly linear
_STEP = 0.02  # of the learning rate, in parts of it: weights may be exported in bfloat16


def moved(probe: Probe, *steps: tuple[float, float, dict[str, float]]) -> Floats:
    """Return how steps move the logprobs of a fresh adapter. A step is the scale of its gradient (0
    for none), its learning rate, and other settings."""
    client = probe.train()
    before = probe.logprobs_of_all(client)
    for scale, rate, settings in steps:
        probe.forward(client, likelihood(scale=scale), backward=True)
        probe.step(client, rate, **settings)
    return probe.logprobs_of_all(client) - before


def rate_of(probe: Probe) -> float:
    """Return a learning rate whose first step moves the logprobs by about `_MOVE`."""
    if probe.bench.rate is None:
        first = 1e-4
        size = float(np.abs(moved(probe, (1.0, first, {}))).max())
        if size == 0:
            raise DiffersError("a step changes nothing")
        probe.bench.rate = first * _MOVE / size
    return probe.bench.rate


def _adam(
    probe: Probe, what: str, expected: float, *steps: tuple[float, float, dict[str, float]]
) -> None:
    """Compare how far steps move the logprobs, relative to the first step of Adam."""
    one = moved(probe, (1.0, rate_of(probe), {}))
    found = float(moved(probe, *steps) @ one / (one @ one))
    what = f"{what}: moves of {found:.3f} and {expected:.3f} times the first step's"
    probe.close(what, found, expected, _ALLOWED)


@check("optimizer.gradient_size", "TrainingClient.optim_step")
def gradient_size(probe: Probe) -> None:
    """The first step of Adam does not depend on the size of the gradient, but on its sign."""
    rate = rate_of(probe)
    _adam(probe, "a gradient of twice the size", 1.0, (2.0, rate, {}))
    _adam(probe, "a gradient of the other sign", -1.0, (-1.0, rate, {}))


@check("optimizer.learning_rate", "TrainingClient.optim_step")
def learning_rate(probe: Probe) -> None:
    """A step is as large as its learning rate."""
    _adam(probe, "half the learning rate", 0.5, (1.0, rate_of(probe) / 2, {}))
    _adam(probe, "a learning rate of 0", 0.0, (1.0, 0.0, {}))


@check("optimizer.plain_steps", "TrainingClient.optim_step")
def plain_steps(probe: Probe) -> None:
    """With a large eps a step is as large as its learning rate and the gradient say."""
    client = probe.train()
    _add(probe, probe.carry_out(step_sizes(_ruler(probe, client)), client))


@check("optimizer.step_size", "TrainingClient.save_weights_external", required=False)
def step_size(probe: Probe) -> None:
    """The first step moves weights by the learning rate, as the exported adapter shows."""
    client = probe.train()
    probe.forward(client, likelihood(), backward=True)
    probe.step(client, RATE)
    path = probe.saved(client.save_weights_external("step", ttl_seconds=HOUR))
    urls = probe.get(probe.bench.rest.get_external_weights_urls(path)).urls
    with urlopen(urls["adapter_model.safetensors"], timeout=30) as answer:
        arrays = load(answer.read())
    moved = [float(np.abs(x).max()) for name, x in arrays.items() if "lora_B" in name]
    if not moved:
        raise DiffersError("the exported adapter has no lora_B")
    what = "the largest weight of B after a step, and the learning rate, in parts of it,"
    probe.relative(what, max(moved), RATE, _STEP)


@check("optimizer.moments", "TrainingClient.optim_step")
def moments(probe: Probe) -> None:
    """beta1 and beta2 are honoured, and the moments are without bias."""
    rate, scale = rate_of(probe), -0.5
    for beta1, beta2 in ((0.9, 0.95), (0.0, 0.9)):
        mean = (beta1 * (1 - beta1) + (1 - beta1) * scale) / (1 - beta1**2)
        square = (beta2 * (1 - beta2) + (1 - beta2) * scale**2) / (1 - beta2**2)
        betas = {"beta1": beta1, "beta2": beta2}
        what, expected = f"beta1 = {beta1}, beta2 = {beta2}", mean / math.sqrt(square)
        _adam(probe, what, expected, (1.0, 0.0, betas), (scale, rate, betas))


@check("optimizer.clipping", "TrainingClient.optim_step")
def clipping(probe: Probe) -> None:
    """grad_clip_norm bounds the gradient; 0 leaves it alone."""
    rate = rate_of(probe)
    betas = {"beta1": 0.0, "beta2": 0.9}
    clipped = {**betas, "grad_clip_norm": 1e-4}
    steps = (1.0, 0.0, clipped), (0.25, rate, clipped)
    _adam(probe, "two gradients that are clipped alike", 1.0, *steps)
    free = 0.25 / math.sqrt((0.9 * 0.1 + 0.1 * 0.0625) / (1 - 0.9**2))
    _adam(probe, "two gradients that are not clipped", free, (1.0, 0.0, betas), (0.25, rate, betas))


@check("optimizer.weight_decay", "TrainingClient.optim_step")
def weight_decay(probe: Probe) -> None:
    """weight_decay shrinks the weights by its share of the learning rate, beside the gradient."""
    rate = rate_of(probe)
    betas = {"beta1": 0.0, "beta2": 0.999}
    decay = {**betas, "weight_decay": 0.3 / rate}
    # Both factors of an adapter shrink, and a gradient of 0 moves nothing besides.
    _adam(probe, "a decay of 0.3", 0.7**2, (1.0, rate, betas), (0.0, rate, decay))


@check("optimizer.eps", "TrainingClient.optim_step")
def eps(probe: Probe) -> None:
    """A large eps keeps the weights where they are."""
    _adam(probe, "eps = 1e8", 0.0, (1.0, rate_of(probe), {"eps": 1e8}))


@check("optimizer.dimuon", "ServiceClient.create_lora_training_client", required=False)
def dimuon(probe: Probe) -> None:
    """A client may choose Dimuon as its optimiser."""
    client = probe.train(optimizer=DimuonOptimizerConfig())
    before = probe.forward(client, likelihood(), backward=True).metrics["loss:sum"]
    probe.get(client.optim_step(DimuonParams(learning_rate=1e-4)))
    after = probe.forward(client, likelihood()).metrics["loss:sum"]
    probe.that(after < before, "the loss is not lower after a step")
