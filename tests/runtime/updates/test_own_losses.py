"""Losses of a recipe's own, from expression to optimiser step, on every kind of service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from engine_tinker import MODEL, engine_tinker
from expressions import program
from loss_library import library_loss
from run_support import tiny, train
from stage_parts import changed

from rlc.algo import LOSSES, Program
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.catalog.index import known_loss, loss_traits
from rlc.plan.parts import LossPlan
from rlc.plan.stages import Training
from rlc.runtime.updates.datums import Minibatch, TrainingDatum
from rlc.runtime.updates.optimizer import UpdateResult, finish_updates, open_loss, submit_gradients
from rlc.service.engine import open_engine
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.service import HostedService
from rlc.service.interface import ServiceClient, TrainingClient

pytestmark = [pytest.mark.engine, pytest.mark.server, pytest.mark.slow]

SETTINGS = {"clip_low": 0.8, "clip_high": 1.2, "beta": 0.3}
BUILTINS = [name for name in LOSSES if loss_traits(LossPlan(name, {})).published]
PLACES = ["engine", "server", "SDK"]

Call = Callable[[ServiceClient, str], Awaitable[Any]]


def on(place: str, root: Path, main: Call) -> Any:
    """Call ``main`` with a service and the name of a model there."""

    async def served(url: str) -> Any:
        service = HostedService(Endpoint(url, "tml-test"))
        try:
            return await main(service, MODEL)
        finally:
            await service.close("success")

    async def here() -> Any:
        return await main(open_engine(root, device="cpu", threads=1), "tiny")

    if place == "engine":
        return asyncio.run(here())
    with engine_tinker(root, custom_losses=place == "server") as server:
        return asyncio.run(served(server.url))


def datums(weights: Sequence[float]) -> list[TrainingDatum]:
    """Replies after prompts, with a gap, each with a weight of its own."""
    rng, made = np.random.default_rng(5), list[TrainingDatum]()
    for weight in weights:
        length = int(rng.integers(6, 14))
        mask_T = np.arange(length) >= 3
        mask_T[5] = False
        made.append(
            TrainingDatum(
                inputs=rng.integers(40, 300, length).tolist(),
                targets_T=rng.integers(40, 300, length),
                logprobs_T=np.where(mask_T, rng.normal(-6, 0.6, length), 0.0),
                advantages_T=np.where(mask_T, rng.normal(size=length), 0.0),
                mask_T=mask_T,
                scored={"reference": rng.normal(-6, 0.6, length)},
                weight=weight,
                name=("made", len(made)),
            )
        )
    return made


async def near(
    training: TrainingClient, data: Sequence[TrainingDatum], apart: float = 0.4
) -> list[TrainingDatum]:
    """The datums with ratios around 1, some of which leave the clip ranges: the sampler's logprobs
    are placed beside the trainer's."""
    rng = np.random.default_rng(1)
    plain = LossPlan("cross_entropy", {})
    output = await training.forward([datum.to_tinker(plain) for datum in data], plain.name)
    rows = [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]
    return [
        evolve(d, logprobs_T=np.where(d.mask_T, row - rng.normal(0, apart, len(row)), 0.0))
        for d, row in zip(data, rows, strict=True)
    ]


async def updated(
    service: ServiceClient,
    model: str,
    loss: LossPlan,
    weights: Sequence[float] = (1, 1, 1, 1),
    apart: float = 0.4,
) -> tuple[UpdateResult, np.ndarray, list[TrainingDatum]]:
    """What an update reports, and all logprobs after it."""
    (stage,) = tiny(train()).stages
    assert isinstance(stage, Training)
    # With a large eps the update follows the gradient, and does not only take its signs.
    optimizer = evolve(stage.optimizer, learning_rate=0.1, eps=1.0)
    stage = changed(stage, loss=loss, optimizer=optimizer)
    training = await service.create_lora_training_client(model, rank=4, seed=7)
    data = await near(training, datums(weights), apart)
    own = await open_loss(service, stage, lambda _: None)
    pending = await submit_gradients(training, stage, 1, [Minibatch(data, loss.config)], own)
    result = await finish_updates(training, stage, 1, [pending])
    plain = LossPlan("cross_entropy", {})
    output = await training.forward([datum.to_tinker(plain) for datum in data], plain.name)
    rows = [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]
    return result, np.concatenate(rows), pending.submitted[0].datums


def written(name: str) -> tuple[LossPlan, LossPlan]:
    """A loss of the service, and the same as a recipe's own."""
    loss = LOSSES[name]
    config = {key: SETTINGS[param] for param, key in loss.settings.items()}
    return LossPlan(name, config), LossPlan("own", {}, loss.text.program("loss", SETTINGS))


@pytest.mark.parametrize("place", PLACES)
def test_a_built_in_loss_written_out_makes_the_same_update(place: str, tmp_path: Path) -> None:
    async def main(service: ServiceClient, model: str) -> None:
        for builtin in BUILTINS:
            named, own = written(builtin)
            assert own.program is not None
            assert getattr(known_loss(own.program), "name", None) == named.name
            expected, after_M, data = await updated(service, model, named)
            result, own_after_M, _ = await updated(service, model, own)
            assert result.metrics["loss/sum"] == pytest.approx(
                expected.metrics["loss/sum"], rel=1e-6
            ), named.name
            np.testing.assert_allclose(own_after_M, after_M, rtol=1e-6, err_msg=named.name)
            read = sum(len(datum.inputs) for datum in data) if place == "SDK" else 0
            assert result.prefill == read

    on(place, tmp_path, main)


OWN = {
    "sequence": "s = exp(mean(logp - logq))\n-min(s, 1.1) * mean(adv)",
    "weighted": "(logp - logq) * (logp - logq) - max(ratio, 0.9) * adv",
    "reference": "away = ref - logp\n-ratio * adv + 0.1 * (exp(away) - away - 1)",
    "weighted sequence": "s = mean(ratio)\ns * s - s * mean(adv) * length",
    "weighted by the batch": "held = batch_top(logp * adv, 0.2)\n"
    "(held - batch_draw(adv, 0.4)) * ratio - (adv - batch_mean(ratio)) * logp",
}


@pytest.mark.parametrize("place", PLACES)
def test_the_service_computes_the_float64_definition(place: str, tmp_path: Path) -> None:
    def expected(loss: Program, data: Sequence[TrainingDatum], rows: Any, weighted: bool) -> float:
        total = 0.0
        for datum, row in zip(data, rows, strict=True):
            inputs = {"logp": row, "logq": datum.logprobs_T, "adv": datum.advantages_T}
            inputs["ref"] = datum.scored["reference"]
            for name, value in datum.batch.items():
                inputs[name] = value
                if isinstance(value, np.ndarray):
                    inputs[name] = np.zeros(len(datum.mask_T))
                    inputs[name][datum.mask_T] = value
            scale = datum.weight if weighted else 1.0
            total += loss_and_grad(loss, inputs, datum.mask_T, scale)[0]
        return total

    weights = (0.5, 1.25, 0.75, 1.5)

    async def main(service: ServiceClient, model: str) -> None:
        for name, text in OWN.items():
            own = LossPlan(name.replace(" ", "_"), {}, program(text))
            assert own.program is not None
            training = await service.create_lora_training_client(model, rank=4, seed=7)
            data = await near(training, datums(weights))
            plain = LossPlan("cross_entropy", {})
            sent = [datum.to_tinker(plain) for datum in data]
            output = await training.forward(sent, plain.name)
            rows = [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]
            result, _, data = await updated(service, model, own, weights)
            passes = (place == "SDK") + loss_traits(own).forward
            assert result.prefill == passes * sum(len(datum.inputs) for datum in data), name
            weighted = loss_traits(own).weighted
            assert weighted == ("weighted" in name or name == "reference")
            value = expected(own.program, data, rows, weighted)
            assert result.metrics["loss/sum"] == pytest.approx(value, rel=2e-6), name

    on(place, tmp_path, main)


def test_the_sign_of_rounding_is_not_learnt(tmp_path: Path) -> None:
    """On a fresh batch `kl_cov()` holds no token, as in float64, whatever the engine rounds."""
    held = LossPlan("kl_cov", {}, library_loss("kl_cov", share=0.5))
    free = LossPlan("kl_cov", {}, library_loss("kl_cov", share=0.5, coef=0.0))

    async def main(service: ServiceClient, model: str) -> None:
        _, expected_M, _ = await updated(service, model, free, apart=0.0)
        for apart in (0.0, 1e-7, 1e-5):
            result, after_M, data = await updated(service, model, held, apart=apart)
            np.testing.assert_allclose(after_M, expected_M, rtol=1e-5, err_msg=str(apart))
            value = -sum(float(datum.advantages_T[datum.mask_T].sum()) for datum in data)
            assert result.metrics["loss/sum"] == pytest.approx(value, rel=1e-4)

    on("engine", tmp_path, main)
