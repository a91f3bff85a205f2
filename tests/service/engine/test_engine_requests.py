"""The embedded engine's requests side by side: waiting, caching, failing, ending."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_support import (
    PROMPT,
    VOCABULARY,
    engine,
    folder,
    params,
    prompt,
    run,
)

from rlc.service.engine.service import LocalService
from rlc.service.interface import ServiceError


def test_the_cache_hits_are_counted_truthfully(service: LocalService) -> None:
    async def main() -> list[int]:
        sampler = await service.create_sampling_client(base_model=folder())
        first = await sampler.sample(prompt(PROMPT), 3, params())
        whole = PROMPT + first.sequences[1].tokens
        second = await sampler.sample(prompt([*whole, 50, 51]), 1, params())
        both = await asyncio.gather(
            *[sampler.sample(prompt([60, 61, 62]), 1, params(seed=s)) for s in range(2)]
        )
        return [r.prompt_cache_hit_tokens for r in (first, second, *both)]

    # The last sampled token's own keys were never computed; hence the one less.
    assert run(main) == [0, len(PROMPT) + 8 - 1, 0, 3]


def test_more_samples_than_rows_wait_their_turn(service: LocalService) -> None:
    async def sample() -> list[list[int]]:
        sampler = await service.create_sampling_client(base_model=folder())
        replies = [
            sampler.sample(prompt([*PROMPT, i]), 4, params(stop=[i + 20], max_tokens=12))
            for i in range(6)
        ]
        return [s.tokens for reply in await asyncio.gather(*replies) for s in reply.sequences]

    expected = run(sample)
    for opened in service._engines.values():
        opened.max_rows = 3
    assert run(sample) == expected


def test_a_long_prompt_is_computed_in_pieces(service: LocalService) -> None:
    async def sample() -> Any:
        sampler = await service.create_sampling_client(base_model=folder())
        long = np.random.default_rng(0).integers(3, VOCABULARY, 90).tolist()
        replies = [sampler.sample(prompt(long[: 60 + 10 * i]), 2, params()) for i in range(4)]
        return [s for reply in await asyncio.gather(*replies) for s in reply.sequences]

    expected = run(sample)
    for opened in service._engines.values():
        opened.decoder.chunk = 16
    for ours, theirs in zip(run(sample), expected, strict=True):
        assert ours.tokens == theirs.tokens
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)


def test_a_bad_or_cancelled_request_disturbs_no_other(service: LocalService) -> None:
    async def main() -> list[list[int]]:
        sampler = await service.create_sampling_client(base_model=folder())
        alone = await sampler.sample(prompt(PROMPT), 1, params())
        good = sampler.sample(prompt(PROMPT), 1, params())
        bad = sampler.sample(prompt([VOCABULARY]), 1, params())
        doomed = asyncio.ensure_future(sampler.sample(prompt(PROMPT), 50, params(max_tokens=100)))
        doomed.cancel()
        with pytest.raises(ServiceError, match="outside the vocabulary"):
            await bad
        with pytest.raises(asyncio.CancelledError):
            await doomed
        return [alone.sequences[0].tokens, (await good).sequences[0].tokens]

    alone, good = run(main)
    assert good == alone


def test_the_event_loop_turns_while_the_engine_works(service: LocalService) -> None:
    async def main() -> int:
        sampler = await service.create_sampling_client(base_model=folder())
        reply: Any = sampler.sample(prompt(PROMPT), 16, params(max_tokens=60))
        turns = 0
        while not reply.done():
            turns += 1
            await asyncio.sleep(0)
        await reply
        return turns

    assert run(main) > 20


def test_requests_made_together_leave_in_one_wave(service: LocalService) -> None:
    waves: list[int] = []
    worker: Any = service._worker
    answer = worker.run_wave

    def counting(wave: Any) -> Any:
        waves.append(len(wave))
        return answer(wave)

    async def turns(sampler: Any, seed: int) -> None:
        for turn in range(3):
            for _ in range(seed % 3):  # some take a little longer to come back
                await asyncio.sleep(0)
            await sampler.sample(prompt([*PROMPT, turn]), 1, params(seed=seed))

    async def main() -> None:
        sampler = await service.create_sampling_client(base_model=folder())
        worker.run_wave = counting
        await asyncio.gather(*[turns(sampler, seed) for seed in range(20)])

    run(main)
    assert waves == [20, 20, 20]


def test_a_closed_engine_says_so_instead_of_hanging(tmp_path: Path) -> None:
    service = engine(tmp_path)

    async def main() -> None:
        sampler = await service.create_sampling_client(base_model=folder())
        service.close()
        with pytest.raises(ServiceError, match="has been closed"):
            await sampler.sample(prompt(PROMPT), 1, params())
        with pytest.raises(ServiceError, match="has been closed"):
            await service.create_sampling_client(base_model=folder())

    run(main)
