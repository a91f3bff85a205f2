"""Samples asked for alone, and the account of what they cost."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
import pytest
import tinker
from attrs import define, field
from tinker import types
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture

from rlc.seeds import sample_seed
from rlc.service.hosted.clients import HostedSamplingClient, Patience
from rlc.service.hosted.refusals import notice
from rlc.service.hosted.sdk import result_of

PROMPT = types.ModelInput.from_ints([1, 2, 3, 4, 5])


def test_what_a_version_gives_in_place_of_its_future_is_awaited_too() -> None:
    async def main() -> list[Any]:
        return [await result_of(one) for one in (AwaitableConcurrentFuture(done), done, 3)]

    done: Future[int] = Future()
    done.set_result(3)
    assert asyncio.run(main()) == [3, 3, 3]


@define
class Sdk:
    """Samples a token that is a function of the seed alone, as a server that repeats itself."""

    hits: int = 0
    asked: list[tuple[int, int | None]] = field(factory=list)

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool,
        topk_prompt_logprobs: int,
        topk_sample_logprobs: int,
    ) -> AwaitableConcurrentFuture[types.SampleResponse]:
        seed = sampling_params.seed
        self.asked.append((num_samples, seed))
        tokens = np.array([(seed or 0) % 1000])
        sequence = types.SampledSequence("length", f"s{seed}", tokens_np=tokens)
        future: Future[types.SampleResponse] = Future()
        future.set_result(
            types.SampleResponse([sequence] * num_samples, prompt_cache_hit_tokens=self.hits)
        )
        return AwaitableConcurrentFuture(future)


def draw(sdk: Sdk, separate: bool, count: int, seed: int | None) -> types.SampleResponse:
    client = HostedSamplingClient(
        cast(tinker.SamplingClient, sdk), Patience("a test"), lambda: separate
    )
    params = types.SamplingParams(max_tokens=1, seed=seed)

    async def ask() -> types.SampleResponse:
        return await client.sample(PROMPT, count, params)

    return asyncio.run(ask())


def tokens(response: types.SampleResponse) -> list[int]:
    return [sequence.tokens[0] for sequence in response.sequences]


def test_a_service_that_repeats_itself_is_asked_for_each_sample_alone() -> None:
    sdk = Sdk()
    response = draw(sdk, separate=True, count=4, seed=7)
    assert [count for count, _ in sdk.asked] == [1, 1, 1, 1]
    assert len({seed for _, seed in sdk.asked}) == 4
    assert len(set(tokens(response))) == 4
    assert tokens(response) == tokens(draw(Sdk(), separate=True, count=4, seed=7))
    assert tokens(response) != tokens(draw(Sdk(), separate=True, count=4, seed=8))


@pytest.mark.parametrize(
    ("separate", "count", "seed"), [(False, 4, 7), (True, 1, 7), (True, 4, None)]
)
def test_otherwise_one_request_does(separate: bool, count: int, seed: int | None) -> None:
    sdk = Sdk()
    response = draw(sdk, separate, count, seed)
    assert sdk.asked == [(count, seed)]
    assert len(response.sequences) == count


@pytest.mark.parametrize("hits", [0, 2, 5])
def test_the_prompt_of_each_separate_request_is_paid_for(hits: int) -> None:
    """A response's account: one prompt less its hits in full, the other prompts as hits."""
    count, length = 3, PROMPT.length
    response = draw(Sdk(hits), separate=True, count=count, seed=1)
    in_full = length - response.prompt_cache_hit_tokens
    as_hits = response.prompt_cache_hit_tokens + (count - 1) * length
    assert (in_full, as_hits) == (count * (length - hits), count * hits)


def test_derived_seeds_are_spread_and_fit_the_wire() -> None:
    seeds = {sample_seed(seed, index) for seed in range(100) for index in range(100)}
    assert len(seeds) > 9_990
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("logged", "said"),
    [
        (
            "Training for m1 is paused. Reason: no machine is free.",
            "waiting for the service: no machine is free",
        ),
        (
            "Sampling is paused for sampler s1. Reason: concurrent sampler weights limit hit",
            "waiting for the service: concurrent sampler weights limit hit",
        ),
        (
            "The job is paused due to billing status. Error: Error code: 402 - {}",
            "the service has paused this account for its billing; waiting up to an hour",
        ),
        (
            "Session heartbeat failed for 121.25 seconds for session x. Last exception: y.\nMore",
            "the service could not be reached for 2 min 01 s; trying again",
        ),
        ("Please upgrade\nthe SDK", "Please upgrade the SDK"),
        ("Retrying request self.request_id='x' because of try_again", None),
        ("Request failed with non-retryable error: ValueError", None),
    ],
)
def test_the_sdks_log_in_words_for_users(logged: str, said: str | None) -> Any:
    assert notice(logged) == said
