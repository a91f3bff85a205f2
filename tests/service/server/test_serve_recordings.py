"""StableReinforce through the SDK: sequences that were recorded, named in what is trained on."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tinker
from http_testing import Running
from serving_support import BASE, PROMPT, in_process, prompt, sampling, weights
from tinker import types

from rlc.service.engine.service import LocalService

LOSS: types.LossFnType = "stable_reinforce"
CONFIG = {"kl_coeff": 0.2}
CLOCK = "server_recordings.time"
STEP = types.AdamParams(learning_rate=0.01)


def datum(sequence: types.SampledSequence, spans: bool = True) -> types.Datum:
    """A reply with an advantage on its tokens, and where each token comes from."""
    known, reply = len(PROMPT), list(sequence.tokens)
    tokens, name = [*PROMPT, *reply], sequence.sequence_id
    assert sequence.logprobs is not None
    arrays: dict[str, Any] = {
        "target_tokens": np.array(tokens[1:], dtype=np.int64),
        "logprobs": np.array([0.0] * (known - 1) + [q - 0.5 for q in sequence.logprobs], "f4"),
        "advantages": np.array([0.0] * (known - 1) + [1.0] * len(reply), "f4"),
    }
    made = types.Datum(prompt(tokens[:-1]), arrays)
    if not spans:
        return made
    return made.with_provenance(
        model_input=[
            types.PromptProvenanceSpan(sequence_id=name, length=known),
            types.SampledProvenanceSpan(sequence_id=name, length=len(reply) - 1),
        ],
        loss_fn_inputs=[
            types.PromptProvenanceSpan(sequence_id=name, offset=1, length=known - 1),
            types.SampledProvenanceSpan(sequence_id=name, length=len(reply)),
        ],
    )


def sampled(client: tinker.TrainingClient, record: bool = True) -> types.SampledSequence:
    sampler = client.save_weights_and_get_sampling_client(record_stability_info=record).result()
    (sequence,) = sampler.sample(prompt(), 1, sampling()).result().sequences
    return sequence


@pytest.fixture
def client(sdk: tinker.ServiceClient) -> tinker.TrainingClient:
    return sdk.create_lora_training_client(BASE, rank=4, seed=7).result()


def test_a_step_is_that_of_the_engine(
    server: Running, client: tinker.TrainingClient, tmp_path: Path
) -> None:
    data = [datum(sampled(client))]

    async def alone(engine: LocalService) -> tuple[types.ForwardBackwardOutput, np.ndarray]:
        mine = await engine.create_lora_training_client("tiny", rank=4, seed=7)
        passed = await mine.forward_backward(data, LOSS, CONFIG)
        await mine.optim_step(STEP)
        return passed, weights(mine)

    expected, expected_P = in_process(tmp_path, alone)
    scored = client.forward(data, LOSS, CONFIG).result()
    passed = client.forward_backward(data, LOSS, CONFIG).result()
    client.optim_step(STEP).result()
    assert passed.metrics["loss:sum"] == pytest.approx(expected.metrics["loss:sum"], rel=1e-5)
    assert scored.metrics == passed.metrics
    served = weights(server.backend.sessions.models[client.model_id].client)
    np.testing.assert_allclose(served, expected_P, atol=1e-5)


def refused(client: tinker.TrainingClient, data: types.Datum) -> str:
    with pytest.raises(tinker.RequestFailedError) as caught:
        client.forward_backward([data], LOSS, CONFIG).result()
    assert caught.value.category == types.RequestErrorCategory.User
    return str(caught.value)


def test_what_was_not_recorded_here_cannot_be_named(
    client: tinker.TrainingClient, sdk: tinker.ServiceClient, server: Running
) -> None:
    assert "not sampled with record_stability_info" in refused(
        client, datum(sampled(client, record=False))
    )
    with tinker.ServiceClient(base_url=server.url, api_key="tml-local") as other:
        stranger = other.create_lora_training_client(BASE, rank=4, seed=7).result()
        assert "not sampled with record_stability_info" in refused(client, datum(sampled(stranger)))
    assert "needs provenance" in refused(client, datum(sampled(client), spans=False))


def test_spans_lie_within_what_they_name_and_tile(client: tinker.TrainingClient) -> None:
    whole = datum(sampled(client))
    assert whole.model_input_spans is not None
    first, second = whole.model_input_spans
    shifted = [first, dataclasses.replace(second, offset=5)]
    said = refused(client, dataclasses.replace(whole, model_input_spans=shifted))
    assert "of the reply of" in said
    said = refused(client, dataclasses.replace(whole, model_input_spans=[first]))
    assert "must tile it exactly" in said


def test_a_recording_lasts_a_day_from_its_last_use(
    client: tinker.TrainingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, now = datum(sampled(client)), time.time()
    monkeypatch.setattr(CLOCK, SimpleNamespace(time=lambda: now))
    for _ in range(2):
        now += 20 * 3600
        client.forward_backward([data], LOSS, CONFIG).result()
    now += 25 * 3600
    assert "in the last day" in refused(client, data)


def test_the_server_says_what_it_is(server: Running) -> None:
    import httpx

    assert httpx.get(f"{server.url}/api/v1/healthz").headers["server"].startswith("rlc/")
