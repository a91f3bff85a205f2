"""Blocking calls in threads: many at once, from one event loop after another."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rlc.envs.workers.threads import ThreadWorkers


def test_many_calls_at_once_each_get_what_is_theirs() -> None:
    def square(number: int) -> int:
        if number == 7:
            raise ValueError("seven")
        return number * number

    async def main(threads: ThreadWorkers) -> list[object]:
        calls = [threads.call(square, number) for number in range(200)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    threads = ThreadWorkers(4)
    for _ in range(2):  # the second loop finds threads that served the first
        results = asyncio.run(main(threads))
        assert isinstance(results.pop(7), ValueError)
        assert results == [n * n for n in range(200) if n != 7]


def test_calls_that_block_do_not_wait_for_one_another() -> None:
    both = threading.Barrier(2)

    async def main() -> None:
        threads = ThreadWorkers(2)
        async with asyncio.timeout(20):  # never reached: each call ends only with the other
            await asyncio.gather(*(threads.call(both.wait) for _ in range(2)))

    asyncio.run(main())


def test_a_call_that_is_given_up_makes_room() -> None:
    release = threading.Event()

    async def main() -> int:
        threads = ThreadWorkers(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await threads.call(release.wait)
        async with asyncio.timeout(20):
            return int(await threads.call(lambda: 5))

    try:
        assert asyncio.run(main()) == 5
    finally:
        release.set()
