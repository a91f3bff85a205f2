"""Sampling through the SDK gives the samples of the engine itself, however requests meet."""

from __future__ import annotations

import asyncio
import math
import pickle
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from http_testing import Running
from serving_support import (
    BASE,
    KEY,
    PROMPT,
    assert_close,
    in_process,
    policy_data,
    prompt,
    sampling,
)
from tinker import types

from rlc.service.engine.decoder import Decoder
from rlc.service.engine.service import LocalService


@pytest.fixture(scope="module")
def sampler(server: Running) -> Any:
    client = tinker.ServiceClient(base_url=server.url, api_key=KEY)
    yield client.create_sampling_client(base_model=BASE).result()
    client.close("success").result()


def tokens(response: types.SampleResponse) -> list[list[int]]:
    return [list(sequence.tokens) for sequence in response.sequences]


def test_samples_are_those_of_the_engine_before_and_after_a_step(
    sdk: tinker.ServiceClient, tmp_path: Path
) -> None:
    step = types.AdamParams(learning_rate=0.02)

    async def alone(engine: LocalService) -> list[types.SampleResponse]:
        client = await engine.create_lora_training_client("tiny", rank=4, seed=7)
        fresh = await client.save_weights_and_get_sampling_client()
        await client.forward_backward(policy_data(), "importance_sampling")
        await client.optim_step(step)
        moved = await client.save_weights_and_get_sampling_client()
        return [await s.sample(prompt(), 4, sampling(), True) for s in (fresh, moved)]

    expected = in_process(tmp_path, alone)
    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    fresh = client.save_weights_and_get_sampling_client().result()
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(step).result()
    moved = client.save_weights_and_get_sampling_client().result()
    assert (fresh.get_base_model(), moved.get_base_model()) == (BASE, BASE)
    for sampler, there in zip((fresh, moved), expected, strict=True):
        here = sampler.sample(prompt(), 4, sampling(), include_prompt_logprobs=True).result()
        assert tokens(here) == tokens(there)
        assert [s.stop_reason for s in here.sequences] == [s.stop_reason for s in there.sequences]
        for ours, theirs in zip(here.sequences, there.sequences, strict=True):
            assert_close(ours.logprobs_np, theirs.logprobs_np)
        assert_close(here.prompt_logprobs_np, there.prompt_logprobs_np)
        scored = sampler.compute_logprobs(prompt()).result()
        assert scored[0] is None
        assert_close(scored[1:], (there.prompt_logprobs or [])[1:])


def test_a_request_is_answered_alike_alone_and_among_others(sampler: tinker.SamplingClient) -> None:
    alone = [
        sampler.sample(prompt(PROMPT[: 5 + i]), 2, sampling(seed=i, max_tokens=4 + i)).result()
        for i in range(8)
    ]

    async def together() -> list[types.SampleResponse]:
        asked = [
            sampler.sample(prompt(PROMPT[: 5 + i]), 2, sampling(seed=i, max_tokens=4 + i))
            for i in range(8)
        ]
        return list(await asyncio.gather(*asked))

    for one, other in zip(alone, asyncio.run(together()), strict=True):
        assert tokens(one) == tokens(other)
        for ours, theirs in zip(one.sequences, other.sequences, strict=True):
            assert_close(ours.logprobs_np, theirs.logprobs_np)


def test_samplers_of_different_weights_are_served_at_once(sdk: tinker.ServiceClient) -> None:
    clients = [sdk.create_lora_training_client(BASE, rank=2, seed=s).result() for s in range(3)]
    for i, client in enumerate(clients):
        client.forward_backward(policy_data(i), "importance_sampling")
        client.optim_step(types.AdamParams(learning_rate=0.05)).result()
    samplers = [client.save_weights_and_get_sampling_client().result() for client in clients]
    alone = [tokens(s.sample(prompt(), 2, sampling()).result()) for s in samplers]
    asked = [s.sample(prompt(), 2, sampling()) for s in samplers for _ in range(3)]
    together = [tokens(future.result()) for future in asked]
    assert together == [alone[i] for i in range(3) for _ in range(3)]
    assert len({str(one) for one in alone}) == 3


def test_every_sample_has_an_id_of_its_own(sampler: tinker.SamplingClient) -> None:
    first = sampler.sample(prompt(), 2, sampling()).result()
    second = sampler.sample(prompt(), 2, sampling()).result()
    ids = [s.sequence_id for response in (first, second) for s in response.sequences]
    assert len(set(ids)) == 4


def test_only_the_end_of_a_prompt_is_scored_where_that_is_asked(
    sampler: tinker.SamplingClient,
) -> None:
    whole = sampler.compute_logprobs(prompt()).result()
    last = sampler.compute_logprobs(prompt(), prompt_logprobs_last_n=3).result()
    assert last[:-3] == [None] * (len(PROMPT) - 3)
    assert last[-3:] == whole[-3:]
    with pytest.raises(tinker.BadRequestError, match="one less than the prompt has tokens"):
        sampler.compute_logprobs(prompt(), prompt_logprobs_last_n=len(PROMPT)).result()


def test_the_likeliest_tokens_at_each_position(sampler: tinker.SamplingClient) -> None:
    response = sampler.sample(
        prompt(), 1, sampling(max_tokens=1), include_prompt_logprobs=True, topk_prompt_logprobs=3
    ).result()
    assert response.topk_prompt_logprobs is not None
    assert response.prompt_logprobs is not None
    assert response.topk_prompt_logprobs[0] is None
    for position, best in enumerate(response.topk_prompt_logprobs[1:], start=1):
        assert best is not None
        assert [lp for _, lp in best] == sorted((lp for _, lp in best), reverse=True)
        own = dict(best).get(PROMPT[position])
        own_lp = response.prompt_logprobs[position]
        assert own_lp is not None
        assert own == pytest.approx(own_lp, rel=1e-4) if own else own_lp <= best[-1][1] + 1e-5


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_likeliest_tokens_at_each_sampled_token(
    sampler: tinker.SamplingClient, temperature: float
) -> None:
    drawn = sampling(max_tokens=6, temperature=temperature)
    response = sampler.sample(prompt(), 2, drawn, topk_sample_logprobs=333).result()
    for sequence in response.sequences:
        assert sequence.topk_logprobs is not None
        assert sequence.logprobs is not None
        assert len(sequence.topk_logprobs) == len(sequence.tokens)
        rows = zip(sequence.tokens, sequence.logprobs, sequence.topk_logprobs, strict=True)
        for token, logprob, best in rows:
            assert best is not None
            assert dict(best)[token] == pytest.approx(logprob, abs=1e-4)
            assert sum(math.exp(lp) for _, lp in best) == pytest.approx(1, abs=1e-4)
            assert temperature > 0 or best[0][0] == token


def test_the_logprobs_of_tokens_named_for_each_position(sampler: tinker.SamplingClient) -> None:
    own = np.array(PROMPT[1:], dtype=np.int64)
    asked = np.stack([own, np.full_like(own, 7), np.full_like(own, -1)], axis=1)
    dense = types.TensorData(asked.ravel(), "int64", list(asked.shape))
    response = sampler.sample(
        prompt(), 1, sampling(max_tokens=1), True, target_prompt_logprobs=dense
    ).result()
    assert response.target_prompt_logprobs is not None
    found = response.target_prompt_logprobs.to_numpy()
    assert response.prompt_logprobs_np is not None
    np.testing.assert_allclose(found[:, 0], response.prompt_logprobs_np[1:], atol=1e-4)
    assert (found[:, 1] < 0).all()
    assert (found[:, 2] == 0).all()
    sparse = types.TensorData(
        np.array([own[0], own[2]]),
        "int64",
        [len(own), 2],
        sparse_crow_indices=[0, 1, 1, *[2] * (len(own) - 2)],
        sparse_col_indices=[0, 1],
    )
    response = sampler.sample(
        prompt(), 1, sampling(max_tokens=1), target_prompt_logprobs=sparse
    ).result()
    assert response.target_prompt_logprobs is not None
    assert response.target_prompt_logprobs.sparse_col_indices == [0, 1]
    np.testing.assert_allclose(
        response.target_prompt_logprobs.data, [found[0, 0], found[2, 0]], atol=1e-6
    )


def test_other_draws_at_each_position_of_a_prompt(sampler: tinker.SamplingClient) -> None:
    def draws(temperature: float, k: int) -> tuple[Any, Any]:
        drawn = sampling(max_tokens=1, temperature=temperature)
        found = sampler.sample(prompt(), 1, drawn, prompt_alt_tokens_k=k).result().prompt_alt_tokens
        assert found is not None
        return found.tokens.to_numpy(), found.logprobs.to_numpy()

    topk = (
        sampler.sample(prompt(), 1, sampling(max_tokens=1), topk_prompt_logprobs=1)
        .result()
        .topk_prompt_logprobs_np
    )
    assert topk is not None
    alternatives, logprobs = draws(0.0, 2)
    assert alternatives.shape == logprobs.shape == (len(PROMPT) - 1, 2)
    np.testing.assert_array_equal(alternatives[:, 0], topk.token_ids[1:, 0])
    np.testing.assert_array_equal(alternatives[:, 0], alternatives[:, 1])
    np.testing.assert_allclose(logprobs[:, 0], topk.logprobs[1:, 0], atol=1e-4)
    many, of_them = draws(1.0, 300)
    for row, values in zip(many, of_them, strict=True):  # drawn as often as they are likely
        tokens, counts = np.unique(row, return_counts=True)
        p = np.exp([values[list(row).index(token)] for token in tokens])
        assert abs(counts.max() / 300 - p[counts.argmax()]) < 0.12


def test_a_sampler_of_a_checkpoint_has_its_weights(
    sdk: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    client = sdk.create_lora_training_client(BASE, rank=4, seed=3).result()
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(types.AdamParams(learning_rate=0.05))
    live = client.save_weights_and_get_sampling_client().result()
    expected = tokens(live.sample(prompt(), 3, sampling()).result())
    for path in (
        client.save_weights_for_sampler("s").result().path,
        client.save_state("t").result().path,
    ):
        saved = sdk.create_sampling_client(model_path=path).result()
        assert saved.get_base_model() == BASE
        assert tokens(saved.sample(prompt(), 3, sampling()).result()) == expected
        described = rest.get_sampler(saved._sampling_session_id).result()
        assert (described.base_model, described.model_path) == (BASE, path)


def test_an_inflight_sampler_takes_over_the_newest_weights(sdk: tinker.ServiceClient) -> None:
    client = sdk.create_lora_training_client(BASE, rank=4, seed=3).result()
    fixed = client.save_weights_and_get_sampling_client().result()
    moving = client.save_weights_and_get_sampling_client(kind="inflight").result()
    before = tokens(moving.sample(prompt(), 3, sampling()).result())
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(types.AdamParams(learning_rate=0.05))
    newest = client.save_weights_and_get_sampling_client(kind="inflight").result()
    after = tokens(newest.sample(prompt(), 3, sampling()).result())
    assert after != before
    assert tokens(moving.sample(prompt(), 3, sampling()).result()) == after
    assert tokens(fixed.sample(prompt(), 3, sampling()).result()) == before


def test_a_pickled_sampler_goes_on_elsewhere(sampler: tinker.SamplingClient) -> None:
    expected = tokens(sampler.sample(prompt(), 2, sampling()).result())
    copy = pickle.loads(pickle.dumps(sampler))
    assert tokens(copy.sample(prompt(), 2, sampling()).result()) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_tokens": 9000}, "max_tokens = 9000 exceed the model's context of 8192"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"stop": [""]}, "none of them empty"),
    ],
)
def test_a_bad_request_is_refused_at_once(
    sampler: tinker.SamplingClient, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(tinker.BadRequestError, match=said):
        sampler.sample(prompt(), 1, sampling(**given)).result()


def test_what_the_server_cannot_do_is_refused_and_not_left_out(
    sampler: tinker.SamplingClient,
) -> None:
    with pytest.raises(tinker.BadRequestError, match="topk_sample_logprobs must be between 0"):
        sampler.sample(prompt(), 1, sampling(), topk_sample_logprobs=5_000).result()
    wrong = types.TensorData(np.array([[1]]), "int64", [1, 1])
    with pytest.raises(tinker.BadRequestError, match="target_prompt_logprobs has 1 rows"):
        sampler.sample(prompt(), 1, sampling(), target_prompt_logprobs=wrong).result()
    with pytest.raises(tinker.BadRequestError, match="token 99999 is outside the vocabulary"):
        sampler.sample(prompt([99999]), 1, sampling()).result()


def test_a_cancelled_request_makes_room(
    sdk: tinker.ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights have their turn when the batch is empty: soon, not after 8,000 tokens."""
    step, steps = Decoder.step, count(1)
    monkeypatch.setattr(Decoder, "step", lambda decoder: (next(steps), step(decoder))[1])
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    sampler = client.save_weights_and_get_sampling_client().result()
    other = client.save_weights_and_get_sampling_client().result()

    async def abandon() -> types.SampleResponse:
        long = asyncio.ensure_future(
            awaited(sampler.sample(prompt(), 1, sampling(max_tokens=8000)))
        )
        await sampler.sample(prompt(), 1, sampling(max_tokens=2))
        long.cancel()
        reply: types.SampleResponse = await awaited(other.sample(prompt(), 1, sampling()))
        return reply

    assert len(tokens(asyncio.run(abandon()))) == 1
    assert next(steps) < 4_000


async def awaited(future: Any) -> Any:
    return await future
