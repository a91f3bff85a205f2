"""The questions before the first step tell a service that does as the plan says from one that
does something close to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from attrs import define
from tinker import types

from rlc.algo.served import LOSSES, builtin_loss_and_grad
from rlc.plan.parts import LossPlan
from rlc.runtime.probes import probe_loss, probe_seeds, probe_topk
from rlc.service.engine import open_engine
from rlc.service.interface import SamplingClient, ServiceError, TrainingClient

pytestmark = pytest.mark.plain

PLANS = [
    LossPlan("cross_entropy", {}),
    LossPlan("importance_sampling", {}),
    LossPlan("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
    LossPlan("ppo", {"clip_low_threshold": 0.5, "clip_high_threshold": 3.0}),
    LossPlan("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}),
    LossPlan("dro", {"beta": 0.05}),
    LossPlan("gspo", {"clip_low_threshold": 0.9997, "clip_high_threshold": 1.0004}),
    LossPlan("gspo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
]
CLIP = ("clip_low_threshold", "clip_high_threshold")
DEFAULTS = {
    "ppo": dict(zip(CLIP, (0.8, 1.2), strict=True)),
    "cispo": dict(zip(CLIP, (0.0, 4.0), strict=True)),
    "dro": {"beta": 0.1},
    "gspo": dict(zip(CLIP, (0.9997, 1.0004), strict=True)),
}


def words(text: str) -> list[int]:
    return [1 + len(word) for word in text.split()]


class Tokenizer:
    encode = staticmethod(words)


@define
class Server:
    """Computes the losses with the local formulas, after a ``mistake`` has had its way."""

    mistake: str = "none"
    asked: int = 0

    def get_tokenizer(self) -> Any:
        return Tokenizer()

    def forward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Mapping[str, Any] | None = None
    ) -> Awaitable[types.ForwardBackwardOutput]:
        self.asked += sum(datum.model_input.length for datum in data)
        return self._forward(data, loss_fn, dict(loss_fn_config or {}))

    async def _forward(
        self, data: list[types.Datum], loss: str, config: dict[str, float]
    ) -> types.ForwardBackwardOutput:
        if self.mistake == "no config":
            config = DEFAULTS.get(loss, {})
        if self.mistake == "no ratio" and loss != "cross_entropy":
            loss, config = "cross_entropy", {}
        if self.mistake == "no clip" and LOSSES[loss].thresholds:
            config = {"clip_low_threshold": 0.0, "clip_high_threshold": 1e9}
        total, outputs, count = 0.0, [], 0
        for datum in data:
            columns = {key: value.to_numpy() for key, value in datum.loss_fn_inputs.items()}
            if loss == "cross_entropy" and "advantages" in columns:
                columns = {"weights": columns["advantages"]}
            if self.mistake == "swapped ratio" and "logprobs" in columns:
                columns["logprobs"] = 2 * self.logprobs(datum) - columns["logprobs"]
            sign = -1.0 if self.mistake == "sign" else 1.0
            logprobs_T = self.logprobs(datum)
            total += sign * builtin_loss_and_grad(loss, config, logprobs_T, columns)[0]
            count += len(logprobs_T)
            outputs.append({"logprobs": types.TensorData.from_numpy(logprobs_T)})
        if self.mistake == "mean over tokens":
            total /= count
        if self.mistake == "mean over datums":
            total /= len(data)
        return types.ForwardBackwardOutput(
            loss_fn_output_type="scalar", loss_fn_outputs=outputs, metrics={"loss:sum": total}
        )

    def logprobs(self, datum: types.Datum) -> np.ndarray[Any, np.dtype[np.float32]]:
        targets_T = datum.loss_fn_inputs["target_tokens"].to_numpy()
        return np.asarray(-0.3 - 0.4 * (targets_T % 5), dtype=np.float32)


def probe(server: Server, plan: LossPlan) -> Any:
    return asyncio.run(probe_loss(cast(TrainingClient, server), plan))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_right_loss_passes_and_is_accounted_for(plan: LossPlan) -> None:
    server = Server()
    found = probe(server, plan)
    assert found.reported == pytest.approx(found.expected)
    assert found.usage.trained == server.asked


@pytest.mark.parametrize(
    ("mistake", "losses"),
    [
        ("mean over tokens", PLANS),
        ("mean over datums", PLANS),
        ("sign", PLANS),
        ("no ratio", [plan for plan in PLANS if plan.name not in ("cross_entropy", "dro")]),
        ("swapped ratio", [plan for plan in PLANS if plan.name not in ("cross_entropy", "dro")]),
        ("no clip", [plan for plan in PLANS if plan.name in ("ppo", "cispo", "gspo")]),
        ("no config", [PLANS[3], PLANS[5], PLANS[7]]),
    ],
)
def test_a_wrong_loss_is_noticed(mistake: str, losses: list[LossPlan]) -> None:
    for plan in losses:
        with pytest.raises(ServiceError, match=f"does not compute `{plan.name}`") as refusal:
            probe(Server(mistake), plan)
        assert "nothing has been trained yet" in str(refusal.value.hint)


def test_a_loss_without_a_local_formula_is_not_judged() -> None:
    assert probe(Server(), LossPlan("unheard_of", {})) is None


RECORDED = LossPlan("stable_reinforce", {})


@pytest.mark.parametrize("plan", [*PLANS, RECORDED], ids=lambda plan: plan.name)
def test_the_embedded_engine_passes(plan: LossPlan, tmp_path: Path) -> None:
    async def ask() -> Any:
        service = open_engine(tmp_path)
        training = await service.create_lora_training_client("tiny", rank=2, seed=1)
        return await probe_loss(training, plan)

    assert asyncio.run(ask()) is not None


def test_the_samples_of_the_embedded_engine_differ(tmp_path: Path) -> None:
    async def ask() -> Any:
        sampler = await open_engine(tmp_path).create_sampling_client(base_model="tiny")
        return await probe_seeds(sampler, sampler.get_tokenizer())

    distinct, usage = asyncio.run(ask())
    assert distinct
    assert usage.sampled > 0


def test_a_service_that_repeats_itself_is_noticed_and_accounted_for() -> None:
    class Repeating:
        async def sample(self, prompt: Any, count: int, params: Any) -> types.SampleResponse:
            same = types.SampledSequence("length", "s", tokens_np=np.array([5, 6, 7]))
            return types.SampleResponse(sequences=[same] * count, prompt_cache_hit_tokens=2)

    distinct, usage = asyncio.run(probe_seeds(cast(SamplingClient, Repeating()), Tokenizer()))
    assert not distinct
    prompt = usage.prefill + 2
    assert (usage.cached, usage.sampled) == (2 + 3 * prompt, 12)


OF = pytest.mark.parametrize("of_reply", [False, True])


@OF
def test_the_embedded_engine_names_the_likeliest_tokens(of_reply: bool, tmp_path: Path) -> None:
    async def ask(top_k: int) -> Any:
        sampler = await open_engine(tmp_path).create_sampling_client(base_model="tiny")
        return await probe_topk(sampler, top_k, of_reply=of_reply)

    assert asyncio.run(ask(20)).sampled == 1
    which = "sample" if of_reply else "prompt"
    with pytest.raises(ServiceError, match=f"topk_{which}_logprobs must be between"):
        asyncio.run(ask(1_000))


@OF
def test_a_service_that_names_no_tokens_is_found_before_anything_is_trained(of_reply: bool) -> None:
    class Silent:
        async def sample(self, *_: Any, **__: Any) -> types.SampleResponse:
            reply = types.SampledSequence("stop", "", _tokens_list=[1], _logprobs_list=[-1.0])
            return types.SampleResponse(sequences=[reply])

    with pytest.raises(ServiceError, match="does not say which tokens"):
        asyncio.run(probe_topk(cast(SamplingClient, Silent()), 20, of_reply=of_reply))
