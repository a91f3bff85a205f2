"""A wave of requests waits for calls whose answers bring more of them, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rlc.service.engine import waves as module
from rlc.service.engine.waves import PendingRequest, WaveWorker
from rlc.service.interface import asking, calls_of, pending_call

pytestmark = pytest.mark.engine


def pending(loop: asyncio.AbstractEventLoop) -> int:
    calls = calls_of(loop)
    return calls.ours + calls.environments


def waves(answer_after: float | None, ours: bool = False) -> list[list[str]]:
    """The waves of two requests, of which one is made after a call that takes so many seconds;
    None: after one that is done only when the first request is answered."""
    seen: list[list[str]] = []

    def run_wave(wave: Sequence[PendingRequest[str]]) -> list[str]:
        seen.append([request.work for request in wave])
        return seen[-1]

    async def scenario() -> None:
        loop, worker = asyncio.get_running_loop(), WaveWorker(run_wave, 1)
        called, first = loop.create_future(), worker.sample("at once")
        if answer_after is None:
            first.add_done_callback(called.set_result)
        else:
            loop.call_later(answer_after, called.set_result, None)

        async def late() -> None:
            with pending_call(ours):
                await called
            await worker.sample("late")

        await asyncio.gather(first, late())
        assert pending(loop) == 0
        worker.close()

    asyncio.run(scenario())
    return seen


def test_a_wave_waits_for_what_is_under_way() -> None:
    assert waves(answer_after=0.01) == [["at once", "late"]]


def test_a_wave_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOKS", 5)
    assert waves(answer_after=None) == [["at once"], ["late"]]


def test_a_wave_waits_for_our_own_computations_until_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LOOKS", 0)
    assert waves(answer_after=0.01, ours=True) == [["at once", "late"]]
    assert waves(answer_after=0.01) == [["at once"], ["late"]]


@pytest.mark.parametrize("ours", [True, False])
def test_a_wave_waits_for_what_follows_a_call_whenever_that_ends(ours: bool) -> None:
    """The request comes a few turns of the loop after the call, which ends in any turn."""
    for turns in range(60):
        seen: list[list[str]] = []

        def run_wave(
            wave: Sequence[PendingRequest[str]], seen: list[list[str]] = seen
        ) -> Sequence[list[str]]:
            seen.append([request.work for request in wave])
            return seen[-1:] * len(wave)

        async def late(worker: WaveWorker[str], turns: int = turns) -> None:
            with pending_call(ours):
                for _ in range(turns):
                    await asyncio.sleep(0)
            for _ in range(8):
                await asyncio.sleep(0)
            await worker.sample("late")

        async def scenario() -> None:
            worker = WaveWorker(run_wave, 1)
            await asyncio.gather(late(worker), worker.sample("at once"))
            worker.close()

        asyncio.run(scenario())
        assert seen == [["at once", "late"]], f"after {turns} turns"


def test_a_wave_does_not_wait_for_a_call_that_asks() -> None:
    """Were it to, each would wait for the other."""
    seen = list[int]()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        async def asks(first: asyncio.Event, last: asyncio.Event) -> None:
            with asking():
                first.set()
                await last.wait()

        with pending_call():
            seen.append(pending(loop))
            one, two, go, on = (asyncio.Event() for _ in range(4))
            tasks = [asyncio.ensure_future(asks(one, go)), asyncio.ensure_future(asks(two, on))]
            await asyncio.gather(one.wait(), two.wait())
            seen.append(pending(loop))
            go.set()
            await tasks[0]
            seen.append(pending(loop))  # the other one still asks
            on.set()
            await tasks[1]
            seen.append(pending(loop))
            late = asyncio.ensure_future(asks(asyncio.Event(), forever := asyncio.Event()))
            await asyncio.sleep(0)
        seen.append(pending(loop))  # over while it asks
        forever.set()
        await late
        seen.append(pending(loop))
        with asking():  # outside of any call
            seen.append(pending(loop))

    asyncio.run(scenario())
    assert seen == [1, 0, 0, 1, 0, 0, 0]
