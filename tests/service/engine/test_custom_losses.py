"""Custom losses on the engine: the numbers of the built-in losses, joined and one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from local_support import gradient, run
from loss_functions import WRITTEN, as_custom, data_for
from paths import ROOT
from tinker import types
from torch import Tensor

from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.service import LocalService, LocalTrainingClient
from rlc.service.interface import ServiceError


async def cleared(service: LocalService) -> LocalTrainingClient:
    """A client without a gradient, away from its base: with B = 0 half the gradient would be 0."""
    client = await service.create_lora_training_client("tiny", rank=4, seed=7)
    await client.forward_backward(data_for("cross_entropy", seed=9), "cross_entropy")
    await client.optim_step(types.AdamParams(learning_rate=0.01))
    return client


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_loss_equals_the_built_in_one(service: LocalService, name: str) -> None:
    data, written = data_for(name), WRITTEN[name]

    async def main() -> None:
        client = await cleared(service)
        loss = await service.create_custom_loss(written.fn, written.ranks)
        assert loss.facts.joinable
        assert not loss.in_client
        builtin = await client.forward_backward(data, name, written.config)
        expected = gradient(client)
        client.trainer.optimizer.gradient_P.zero_()
        custom = await client.forward_backward_custom(as_custom(data), loss)
        assert custom.metrics["loss:sum"] == pytest.approx(builtin.metrics["loss:sum"], rel=1e-6)
        np.testing.assert_allclose(gradient(client), expected, atol=1e-6 * np.abs(expected).max())
        for ours, theirs in zip(custom.loss_fn_outputs, builtin.loss_fn_outputs, strict=True):
            np.testing.assert_array_equal(
                ours["logprobs"].to_numpy(), theirs["logprobs"].to_numpy()
            )

    run(main)


def test_the_example_of_the_documentation_runs(service: LocalService) -> None:
    text = (ROOT / "docs" / "custom-losses.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    ranks: dict[str, Literal[0, 1, 2]] = {"logprobs": 1, "sampler_logprobs": 1, "advantages": 1}
    data = data_for("ppo")
    for datum in data:
        datum.loss_fn_inputs["sampler_logprobs"] = datum.loss_fn_inputs["logprobs"]

    async def main() -> None:
        client = await cleared(service)
        loss = await service.create_custom_loss(names["dual_clip"], ranks)
        assert loss.facts.joinable
        assert loss.facts.zeroed_by == {"advantages"}
        ppo = await client.forward_backward(data_for("ppo"), "ppo", WRITTEN["ppo"].config)
        told = await client.forward_backward_custom(data, loss)
        assert told.metrics["loss:sum"] <= ppo.metrics["loss:sum"]

    run(main)


def test_metrics_combine_over_datums_by_their_suffix(service: LocalService) -> None:
    data = as_custom(data_for("ppo"))

    def fn(logprobs: Tensor, advantages: Tensor) -> Any:
        loss = -(logprobs * advantages).sum()
        tokens = torch.ones_like(logprobs).sum()
        return loss, {"custom/tokens:sum": tokens, "custom/tokens:mean": tokens}

    async def main() -> None:
        client = await cleared(service)
        loss = await service.create_custom_loss(fn, {"logprobs": 1, "advantages": 1})
        metrics = (await client.forward_backward_custom(data, loss)).metrics
        tokens = [datum.model_input.length for datum in data]
        assert metrics["custom/tokens:sum"] == sum(tokens)
        assert metrics["custom/tokens:mean"] == pytest.approx(np.mean(tokens))

    run(main)


def test_it_reads_scalars_and_several_targets_of_a_position(service: LocalService) -> None:
    """A weight for each datum, and K targets with a distribution: soft cross-entropy."""
    rng = np.random.default_rng(0)
    data, plain = [], []
    for length, weight in ((5, 0.5), (8, 2.0)):
        tokens = types.ModelInput.from_ints(rng.integers(40, 300, length).tolist())
        targets = rng.integers(40, 300, (length, 3))
        shares = rng.random((length, 3)).astype(np.float32)
        own: dict[str, Any] = {
            "target_tokens": targets,
            "shares": shares,
            "weight": types.TensorData(np.array(weight, dtype=np.float32), "float32", []),
        }
        usual: dict[str, Any] = {
            "target_tokens": targets,
            "weights": (shares * weight).astype(np.float32),
        }
        data.append(types.Datum(tokens, own))
        plain.append(types.Datum(tokens, usual))

    def fn(logprobs: Tensor, shares: Tensor, weight: Tensor) -> Any:
        return -(logprobs * shares).sum() * weight, {}

    async def main() -> None:
        client = await cleared(service)
        loss = await service.create_custom_loss(fn, {"logprobs": 2, "shares": 2, "weight": 0})
        expected = await client.forward_backward(plain, "cross_entropy")
        wanted = gradient(client)
        client.trainer.optimizer.gradient_P.zero_()
        told = await client.forward_backward_custom(data, loss)
        assert told.metrics["loss:sum"] == pytest.approx(expected.metrics["loss:sum"], rel=1e-6)
        np.testing.assert_allclose(gradient(client), wanted, atol=1e-6 * np.abs(wanted).max())

    run(main)


def ungraded(logprobs: Tensor, advantages: Tensor) -> Any:
    with torch.no_grad():
        weights = torch.exp(logprobs)
    return -(weights * logprobs * advantages).sum(), {}


def branching(logprobs: Tensor, advantages: Tensor) -> Any:
    return (logprobs * advantages if logprobs.sum() > 0 else logprobs).sum(), {}


def moved(logprobs: Tensor, advantages: Tensor) -> Any:
    return (logprobs.cuda() * advantages).sum(), {}


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (ungraded, r"ungraded uses torch.no_grad, .* Say x.detach\(\) instead"),
        (branching, r"branching cannot be traced by torch.fx: .*control flow"),
        (moved, r"'moved', node 'cuda' \('cuda'\), is not possible: a custom loss may"),
        (print, "must take logprobs as its first parameter"),
        (3, "3 is not a callable object"),
    ],
)
def test_what_cannot_be_traced_is_one_sentence(service: LocalService, fn: Any, says: str) -> None:
    async def main() -> None:
        with pytest.raises(ServiceError, match=says):
            await service.create_custom_loss(fn, {"logprobs": 1, "advantages": 1})

    run(main)


def unfitting(logprobs: Tensor, advantages: Tensor) -> Any:
    return (logprobs[:-1] * advantages).sum(), {}


def infinite(logprobs: Tensor, advantages: Tensor) -> Any:
    return (logprobs * torch.log(advantages - advantages)).sum(), {}


def hidden(logprobs: Tensor, advantages: Tensor) -> Any:
    """Its loss is finite, its gradient is not: the root of 0 has none."""
    return torch.sqrt((logprobs * (advantages - advantages)).square()).sum(), {}


def unreduced(logprobs: Tensor, advantages: Tensor) -> Any:
    return (logprobs * advantages)[1:], {}


def paired(logprobs: Tensor, advantages: Tensor) -> Any:
    x = logprobs
    for _ in range(100):
        x = x.unsqueeze(-1) * advantages.unsqueeze(0)
        x = x.sum(0)
    return x.sum(), {}


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (
            unfitting,
            r"Datum \d: custom loss 'unfitting', node 'mul' \('operator.mul'\): the shapes \[\d+\]",
        ),
        (infinite, r"Datum \d: the loss of the custom loss 'infinite' is not finite"),
        (hidden, r"Datum \d: the gradient of the custom loss 'hidden' is not finite"),
        (unreduced, r"Datum \d: the custom loss 'unreduced' must return scalar tensors, but its"),
        (paired, r"Datum \d: .*do not pair all tokens with all"),
    ],
)
def test_a_loss_that_fails_leaves_the_gradient_as_it_was(
    service: LocalService, fn: Callable[..., Any], says: str
) -> None:
    data = as_custom(data_for("ppo"))
    long = as_custom(data_for("ppo", count=1))[0]
    tokens = (long.model_input.to_ints() * 99)[:120]
    inputs: dict[str, Any] = {
        "target_tokens": np.array(tokens),
        "advantages": np.ones(len(tokens), dtype=np.float32),
    }
    data.append(types.Datum(types.ModelInput.from_ints(tokens), inputs))

    async def main() -> None:
        client = await cleared(service)
        loss = await service.create_custom_loss(fn, {"logprobs": 1, "advantages": 1})
        await client.forward_backward(data_for("ppo"), "importance_sampling")
        before = gradient(client)
        with pytest.raises(ServiceError, match=says):
            await client.forward_backward_custom(data, loss)
        np.testing.assert_array_equal(gradient(client), before)
        assert np.any(before)

    run(main)


def test_inputs_must_be_there_with_their_ranks(service: LocalService) -> None:
    data = data_for("ppo", count=1)

    async def main() -> None:
        client = await cleared(service)
        loss = await service.create_custom_loss(WRITTEN["ppo"].fn, WRITTEN["ppo"].ranks)
        with pytest.raises(ServiceError, match=r"Datum 0: .* needs the input 'sampler'"):
            await client.forward_backward_custom(data, loss)
        ranks = {**WRITTEN["ppo"].ranks, "sampler": 0}
        other = await service.create_custom_loss(WRITTEN["ppo"].fn, ranks)
        with pytest.raises(ServiceError, match=r"sampler has rank 1, .* declared rank 0"):
            await client.forward_backward_custom(as_custom(data), other)

    run(main)


# A random loss is a list of steps, each of an operation and the values that it takes.
_OF_ONE: dict[str, Callable[[Any], Any]] = {
    "exp": lambda x: torch.exp(x.clamp(max=3.0)),
    "tanh": torch.tanh,
    "sum": lambda x: x.sum(),
    "mean": lambda x: torch.mean(x),
    "largest": lambda x: x.amax(),
    "detach": lambda x: x.detach(),
    "sigmoid": lambda x: torch.sigmoid(x) - 0.5,
    "logsigmoid": torch.nn.functional.logsigmoid,
    "reflected": lambda x: 1 - x,
    "halved": lambda x: x / 2,
    "per token": lambda x: x / x.numel(),
    "square": lambda x: x**2,
    "mask": lambda x: (x > 0.1).float(),
    "abs": abs,
    "smallest": lambda x: x.min(),
    "cast": lambda x: (x > 0).to(x.dtype),
}
_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": torch.mul,
    "minimum": torch.minimum,
    "maximum": lambda x, y: torch.max(x, y),
    "where": lambda x, y: torch.where(x > y, x, y * 0.5),
    "clamp": lambda x, y: torch.clamp(x, max=y),
    "safe quotient": lambda x, y: x / (y.abs() + 1.0),
}
_STEPS = st.one_of(
    st.tuples(st.sampled_from(sorted(_OF_ONE)), st.integers(0, 30)),
    st.tuples(st.sampled_from(sorted(_OF_TWO)), st.integers(0, 30), st.integers(0, 30)),
)


@given(st.lists(_STEPS, min_size=1, max_size=12), st.integers(0, 9))
def test_datums_joined_give_what_each_gives_alone(steps: list[Any], seed: int) -> None:
    def fn(logprobs: Tensor, sampler: Tensor, advantages: Tensor, weight: Tensor) -> Any:
        values: list[Any] = [logprobs, sampler, advantages, weight]
        for name, *operands in steps:
            taken = [values[-1 - at % len(values)] for at in operands]
            values.append((_OF_ONE if len(taken) == 1 else _OF_TWO)[name](*taken))
        loss = (values[-1] + 0.1 * logprobs).sum()
        return loss, {"custom/last:sum": values[-1].sum()}

    loss = CustomLoss.trace(fn, {"logprobs": 1, "sampler": 1, "advantages": 1, "weight": 0})
    assert loss.facts.joinable
    alone = evolve(loss, facts=evolve(loss.facts, joinable=False))
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, 4)
    datums = [
        {
            "target_tokens": np.zeros(n, dtype=np.int64),
            "sampler": rng.normal(size=n).astype(np.float32),
            "advantages": rng.normal(size=n).astype(np.float32) * (i > 0),
            "weight": np.array(i, dtype=np.float32),
        }
        for i, n in enumerate(lengths)
    ]
    told = []
    for computed in (loss, alone):
        torch.manual_seed(seed)
        lp_M = torch.randn(int(lengths.sum()), dtype=torch.float64, requires_grad=True)
        summed, metrics = computed.total(lp_M, datums, range(4))
        (found,) = torch.autograd.grad(summed, lp_M)
        told.append((summed.detach().numpy(), metrics["custom/last:sum"], found.numpy()))
    for joined, single in zip(*told, strict=True):
        np.testing.assert_allclose(joined, single, rtol=1e-12, atol=1e-12)
    # Where the loss says that an input turns it off, its gradient is 0 there.
    for i, datum in enumerate(datums):
        if not loss.has_gradient(datum):
            ends = np.cumsum(lengths)
            assert not told[0][2][ends[i] - lengths[i] : ends[i]].any()
