"""Computations of many coroutines share the event loop."""

from __future__ import annotations

import asyncio

import pytest

from rlc.runtime import concurrency
from rlc.runtime.concurrency import EventLoopYield


def test_much_to_compute_is_spread_over_rounds_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pieces of 2 ms each, all ready at once: three are begun before the loop is free."""
    now = [100.0]
    monkeypatch.setattr(concurrency, "perf_counter", lambda: now[0])
    longest, since = [0.0], [now[0]]

    async def compute(line: EventLoopYield, order: list[int], number: int) -> None:
        await line.if_due()
        now[0] += 0.002
        order.append(number)

    async def watch() -> None:
        while True:
            longest[0] = max(longest[0], now[0] - since[0])
            since[0] = now[0]
            await asyncio.sleep(0)

    async def test() -> list[int]:
        watching, line, order = asyncio.ensure_future(watch()), EventLoopYield(), list[int]()
        await asyncio.gather(*[compute(line, order, number) for number in range(100)])
        watching.cancel()
        return order

    assert asyncio.run(test()) == list(range(100))
    assert longest[0] < 0.0081
