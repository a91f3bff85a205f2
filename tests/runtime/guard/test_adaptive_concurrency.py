"""The level of concurrency: bounded, never stuck, and soon back where it is best."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker import types

from rlc.envs.deadlines import Deadline
from rlc.runtime.service_guard import (
    AdaptiveConcurrency,
    ConcurrencyLimiter,
    LimitedSamplingClient,
    fixed_limiter,
)

pytestmark = pytest.mark.plain

EVENTS = st.lists(
    st.one_of(
        st.just("pressed"),
        st.tuples(st.floats(0.001, 100), st.integers(1, 64), st.integers(0, 5000), st.booleans()),
    ),
    max_size=200,
)


@given(EVENTS, st.integers(1, 10_000))
@settings(deadline=None)
def test_the_level_stays_between_one_and_the_cap(events: list[Any], cap: int) -> None:
    concurrency, now = AdaptiveConcurrency(cap=cap), 0.0
    for event in events:
        now += 0.3
        if event == "pressed":
            concurrency.pressed(now)
        else:
            concurrency.answered(now, *event)
        assert 1 <= concurrency.limit <= cap


@given(st.floats(2.0, 8_192.0), st.floats(0.01, 50.0))
def test_refusals_of_one_moment_count_once(level: float, latency: float) -> None:
    concurrency = AdaptiveConcurrency(level=level)
    concurrency.answered(0.0, latency, 1, 10, full=False)
    for moment in range(5):
        concurrency.pressed(1.0 + moment * 0.9 * max(1.0, latency) / 5)
    assert (concurrency.backoffs, concurrency.level) == (1, level / 2)


def test_a_level_that_nobody_waits_for_stays_as_it_is() -> None:
    concurrency = AdaptiveConcurrency(level=8.0)
    for second in range(1_000):
        concurrency.answered(float(second), 1.0, 4, 100, full=False)
    assert concurrency.limit == 8


@define
class Service:
    """A simulated service, driven by its level of concurrency in simulated time.

    ``bears`` says how many requests it bears at a time (seconds); above that it refuses. An answer
    takes ``latency``(requests in flight) seconds and has 100 tokens.
    """

    concurrency: AdaptiveConcurrency
    bears: Callable[[float], float]
    latency: Callable[[int], float] = lambda _: 1.0
    now: float = 0.0
    answered: list[float] = field(factory=list)
    levels: list[tuple[float, int]] = field(factory=list)

    def run(self, seconds: float) -> None:
        """Always more to ask than the level allows."""
        under_way: list[tuple[float, float]] = []
        while self.now < seconds:
            while len(under_way) < self.concurrency.limit:
                if len(under_way) >= self.bears(self.now):
                    self.concurrency.pressed(self.now)
                    break
                done = self.now + self.latency(len(under_way) + 1) * (1 + len(self.answered) % 3)
                heapq.heappush(under_way, (done, self.now))
            if not under_way:
                self.now += 0.5
                continue
            self.now, asked = heapq.heappop(under_way)
            self.concurrency.answered(self.now, self.now - asked, 1, 100, full=True)
            self.answered.append(self.now)
            self.levels.append((self.now, self.concurrency.limit))

    def answers(self, since: float, until: float) -> int:
        return sum(since <= when < until for when in self.answered)

    def level(self, since: float, until: float) -> float:
        found = [level for when, level in self.levels if since <= when < until]
        return sum(found) / len(found)


@pytest.mark.parametrize("capacity", [3, 40, 300])
def test_the_level_settles_just_below_what_the_service_bears(capacity: int) -> None:
    service = Service(AdaptiveConcurrency(), lambda _: capacity)
    service.run(400.0)
    assert 0.5 * capacity <= service.level(100, 400) <= capacity + 1
    most = capacity * 300 / 2  # answers take 2 seconds on average
    assert service.answers(100, 400) >= 0.6 * most


def test_after_a_storm_the_old_level_is_soon_found_again() -> None:
    storm = (200.0, 230.0)
    service = Service(AdaptiveConcurrency(), lambda now: 2 if storm[0] <= now < storm[1] else 100)
    service.run(300.0)
    assert service.level(*storm) < 60
    assert service.level(220, 230) <= 8
    assert service.level(270, 300) >= 0.6 * service.level(100, 200)


def test_a_service_that_gets_slower_with_every_request_is_not_pressed_further() -> None:
    """From 20 on, each more request costs all of them: 512 at once would do less than 20."""
    slow = Service(
        AdaptiveConcurrency(level=16.0), lambda _: 1e9, lambda n: max(1.0, n / 20) ** 1.5
    )
    stubborn = Service(AdaptiveConcurrency(adapts=False, cap=512), lambda _: 1e9, slow.latency)
    slow.run(2_000.0)
    stubborn.run(2_000.0)
    assert slow.level(1_000, 2_000) <= 150
    assert slow.answers(1_000, 2_000) >= 1.5 * stubborn.answers(1_000, 2_000)


@define
class Sampler:
    """Answers when it is told to."""

    waiting: list[asyncio.Future[None]] = field(factory=list)
    order: list[Any] = field(factory=list)

    def get_tokenizer(self) -> Any:
        raise NotImplementedError

    async def sample(
        self, prompt: Any, num_samples: int, sampling_params: Any, *_: Any, **__: Any
    ) -> Any:
        self.order.append(prompt)
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]
        return types.SampleResponse(sequences=[])

    async def compute_logprobs(self, prompt: Any) -> list[float | None]:
        await self.sample(prompt, 1, None)
        return [None]

    async def answer(self) -> None:
        self.waiting.pop(0).set_result(None)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_comes_first_is_first_and_a_turn_waits_for_one_turn_of_each() -> None:
    """A large environment cannot starve a small one: its members queue like the others."""

    async def scenario() -> None:
        sampler = Sampler()
        limited: Any = LimitedSamplingClient(sampler, fixed_limiter(2))

        async def member(name: str) -> None:
            for turn in range(3):
                await limited.sample((name, turn), 1, None)

        tasks = [asyncio.create_task(member(name)) for name in ("big1", "big2", "big3", "small")]
        await settle()
        while sampler.waiting:
            assert len(sampler.waiting) <= 2
            await sampler.answer()
        await asyncio.gather(*tasks)
        first_turns = [name for name, turn in sampler.order[:4]]
        assert first_turns == ["big1", "big2", "big3", "small"]
        small = [place for place, (name, _) in enumerate(sampler.order) if name == "small"]
        assert max(b - a for a, b in pairwise(small)) <= 4

    asyncio.run(scenario())


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=60)
def test_cancelled_requests_never_hold_a_place(
    requests: list[tuple[int, bool]], cap: int, random: Any
) -> None:
    """Whoever is cancelled, waiting or under way: all others are answered, and nothing is left."""

    async def scenario() -> None:
        sampler, limiter = Sampler(), fixed_limiter(cap)
        limited: Any = LimitedSamplingClient(sampler, limiter)
        tasks = [asyncio.create_task(limited.sample(n, n, None)) for n, _ in requests]
        await settle()
        doomed = [task for task, (_, dies) in zip(tasks, requests, strict=True) if dies]
        random.shuffle(doomed)
        while not all(task.done() for task in tasks):
            assert limiter.in_flight <= max(cap, *(n for n, _ in requests))
            sampler.waiting = [future for future in sampler.waiting if not future.done()]
            if doomed and random.random() < 0.5:
                doomed.pop().cancel()
                await settle()
            else:
                assert sampler.waiting, "somebody waits, and nobody is under way"
                await sampler.answer()
        assert limiter.in_flight == 0

    asyncio.run(scenario())


def test_waiting_for_a_place_is_told_and_is_not_the_episodes_time() -> None:
    async def scenario() -> tuple[float, dict[str, float]]:
        sampler, clock = Sampler(), iter(range(1_000))
        limiter = ConcurrencyLimiter(
            AdaptiveConcurrency(cap=1, adapts=False), clock=lambda: float(next(clock))
        )
        limited: Any = LimitedSamplingClient(sampler, limiter)

        async def episode() -> float:
            async with Deadline(None, "the episode") as spent:
                await limited.compute_logprobs("p")
            return spent.waited

        tasks = [asyncio.create_task(episode()) for _ in range(2)]
        await settle()
        await sampler.answer()
        await sampler.answer()
        return (await asyncio.gather(*tasks))[1], limiter.metrics()

    waited, metrics = asyncio.run(scenario())
    assert waited > 0
    assert metrics["service/queue_wait"] > 0
    assert metrics["service/concurrency"] == 1
    assert metrics["service/backoffs"] == 0


def test_backoffs_are_told_once() -> None:
    limiter = ConcurrencyLimiter(clock=lambda: 10.0)
    limiter.pressed()
    assert [limiter.metrics()["service/backoffs"] for _ in range(2)] == [1, 0]
