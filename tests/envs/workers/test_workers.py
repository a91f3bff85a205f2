"""Blocking environments off the event loop: in threads, in processes, by any executor."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import worker_games
from attrs import define, field
from worker_games import AddingSource, LockedSource, LockedStateSource

from rlc.chat.turns import Action, EnvError, Observation
from rlc.data.errors import DataError
from rlc.envs.base import AsyncEpisode, Episode, TaskKey
from rlc.envs.deadlines import Deadline, OverdueError
from rlc.envs.workers.async_adapter import ProcessSource, ThreadedSource, make_async
from rlc.envs.workers.processes import ExecutorWorkers, ProcessWorkers
from rlc.envs.workers.threads import ThreadWorkers
from rlc.runtime.rollouts.player import close_all

T = TypeVar("T")
PROCESSES = {"kind": "processes", "count": 2, "executor": None}


def own(function: str, count: int | None = None) -> dict[str, Any]:
    executor = f"worker_games:{function}"
    return {"kind": "executor", "count": count, "executor": executor}


async def start(source: ThreadedSource | ProcessSource, size: int = 1, seed: int = 0) -> list[Any]:
    return await source.open(TaskKey(0, 0, seed, size), range(size))


async def say(episode: AsyncEpisode, *actions: str) -> list[Observation]:
    return [await episode.play(Action(action)) for action in actions]


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):  # never reached, unless something hangs
            return await test()

    return asyncio.run(bounded())


@define
class Waiting:
    """A step goes on only once the loop has come round to saying so."""

    go_on: threading.Event = field(factory=threading.Event)
    begun: threading.Event = field(factory=threading.Event)
    first: Observation = field(factory=lambda: Observation("wait"))

    def step(self, action: str) -> Observation:
        self.begun.set()
        waited = self.go_on.wait(30)
        return Observation(action, float(waited), True)


@define
class WaitingSource:
    made: list[Waiting] = field(factory=list)

    def group(self, seed: int, size: int) -> list[Episode]:
        self.made = [Waiting() for _ in range(size)]
        return list(self.made)


def test_a_step_that_blocks_leaves_the_loop_to_the_others() -> None:
    async def test() -> float | None:
        source = WaitingSource()
        (episode,) = await start(make_async(source))
        playing = asyncio.ensure_future(episode.play(Action("now")))
        while not source.made[0].begun.is_set():
            await asyncio.sleep(0)
        source.made[0].go_on.set()
        seen: Observation = await playing
        return seen.reward

    assert run(test) == 1.0


def test_as_many_steps_block_side_by_side_as_there_are_threads() -> None:
    barrier = threading.Barrier(3)

    async def test() -> set[int]:
        threads = ThreadWorkers(3)
        return set(await asyncio.gather(*[threads.call(barrier.wait, 30) for _ in range(3)]))

    assert run(test) == {0, 1, 2}


def test_a_step_that_hangs_gives_its_place_to_another_thread() -> None:
    async def test() -> tuple[str, str]:
        source = WaitingSource()
        stuck, fine = await start(make_async(source, {"kind": "threads", "count": 1}), 2)
        source.made[1].go_on.set()
        with pytest.raises(OverdueError, match="a step took longer than 10 ms"):
            async with Deadline(0.01, "a step"):
                await stuck.play(Action("first"))
        (after,) = await say(fine, "second")
        source.made[0].go_on.set()  # it comes back, and nobody listens
        return after.text, threading.current_thread().name

    assert run(test) == ("second", "MainThread")


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt])
def test_an_environment_cannot_end_the_program(error: type[BaseException]) -> None:
    def step() -> None:
        raise error

    async def test() -> None:
        await ThreadWorkers().call(step)

    with pytest.raises(EnvError, match=f"the environment raised {error.__name__}"):
        run(test)


@pytest.fixture(autouse=True)
def games_are_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(Path(worker_games.__file__).parent))
    worker_games.MADE.clear()
    yield
    for executor in worker_games.MADE:
        executor.shutdown(wait=False)


def test_an_episode_goes_from_process_to_process() -> None:
    """Two at a time, so both processes play; the results are those of a thread."""

    async def test(settings: dict[str, Any] | None) -> list[list[Observation]]:
        source = make_async(AddingSource(), settings)
        members = await start(source, 2, seed=10)
        played = await asyncio.gather(*[say(member, "1", "2", "3") for member in members])
        await source.close()
        return played

    away, here = run(lambda: test(PROCESSES)), run(lambda: test(None))
    values = [[(seen.text, seen.reward, seen.done) for seen in one] for one in away]
    assert values == [[("11", 11.0, False), ("13", 13.0, False), ("16", 16.0, True)]] * 2
    assert values == [[(seen.text, seen.reward, seen.done) for seen in one] for one in here]
    assert {seen.metrics["pid"] for one in here for seen in one} == {os.getpid()}
    assert os.getpid() not in {seen.metrics["pid"] for one in away for seen in one}


@pytest.mark.kill
def test_what_goes_wrong_in_a_process_is_that_episodes_affair() -> None:
    """Deaths, hangs and odd errors: the others go on, and so do those that come after."""

    async def test() -> list[str]:
        source = make_async(AddingSource(), PROCESSES)
        told = []
        for word, seconds in (("die", 30), ("hang", 0.05), ("leave", 30), ("stubborn", 30)):
            broken, fine = await start(source, 2)
            with pytest.raises(EnvError) as caught:
                async with Deadline(seconds, "a step"):
                    await asyncio.gather(broken.play(Action(word)), say(fine, "1"))
            told.append(f"{caught.type.__name__}: {caught.value}")
            after = await say(fine, "5")
            assert after[0].text in ("5", "6")
        await source.close()
        return told

    assert run(test) == [
        "WorkerDiedError: the process of the environment died",
        "OverdueError: a step took longer than 50 ms",
        "EnvError: the environment raised SystemExit",
        "EnvError: StubbornError: one and two",
    ]


def test_an_environment_that_cannot_be_sent_says_so() -> None:
    with pytest.raises(EnvError, match=r"the environment cannot be sent .* take `workers\(threads"):
        make_async(LockedSource(), PROCESSES)

    async def play(source: AddingSource, *actions: str) -> None:
        (episode,) = await start(make_async(source, own("make_threads")))
        await say(episode, *actions)

    with pytest.raises(EnvError, match="the state of an episode cannot be sent"):
        run(lambda: play(LockedStateSource()))
    with pytest.raises(EnvError, match="the state of an episode cannot be sent"):
        run(lambda: play(AddingSource(), "lock"))


@pytest.mark.parametrize("make", ["make_threads", "make_dask"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_any_executor_will_do(make: str, caplog: pytest.LogCaptureFixture) -> None:
    if make == "make_dask":
        pytest.importorskip("distributed", reason="Dask's distributed is not installed")

    async def test() -> list[Observation]:
        source = make_async(AddingSource(), own(make, count=1))
        members = await start(source, 4, seed=1)
        played = await asyncio.gather(*[say(member, "1") for member in members])
        await close_all([source])
        return [one[0] for one in played]

    assert {seen.text for seen in run(test)} == {"2"}
    assert "did not close" not in caplog.text
    while worker_games.DASK:
        client = worker_games.DASK.pop()
        client.close()
        client.cluster.close()


def test_what_is_no_executor_is_refused() -> None:
    with pytest.raises(EnvError, match="has no `submit`: it is of type object"):
        run(lambda: start(make_async(AddingSource(), own("make_nothing"))))
    with pytest.raises(DataError, match=r"worker_games\.py has no `make_what`"):
        make_async(AddingSource(), own("make_what"))


def test_a_missing_ray_is_found_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlc.envs.workers.processes.find_spec", lambda _: None)
    settings = {"kind": "ray", "count": 2, "cpus": 1.0, "resources": {}, "address": None}
    with pytest.raises(EnvError, match=r"`workers\(ray\)` needs the package ray"):
        make_async(AddingSource(), settings)


def test_an_executor_that_breaks_is_made_anew_and_only_the_guilty_fail() -> None:
    """A dead process breaks its whole pool, and every call that is under way in it."""

    async def test() -> list[Any]:
        source = make_async(AddingSource(), own("make_processes"))
        members = await start(source, 4)
        actions = ["1", "die", "2", "3"]
        played = await asyncio.gather(
            *[m.play(Action(a)) for m, a in zip(members, actions, strict=True)],
            return_exceptions=True,
        )
        await source.close()
        return played

    played = run(test)
    assert [type(one).__name__ for one in played] == [
        *["Observation", "WorkerDiedError", "Observation", "Observation"]
    ]
    assert [one.text for one in played if isinstance(one, Observation)] == ["1", "2", "3"]
    assert len(worker_games.MADE) == 3  # one broke with all its calls, one with the guilty alone


def test_places_are_waited_for_outside_of_the_deadline() -> None:
    """One process, and a call in it that takes as long as the test likes."""

    async def test() -> float:
        processes = ProcessWorkers(1)
        await processes.call(os.getpid)
        begun, done = asyncio.Event(), asyncio.Event()

        async def holder() -> None:
            await processes._places.acquire()
            begun.set()
            await done.wait()
            processes._places.release()

        holding = asyncio.ensure_future(holder())
        await begun.wait()
        async with Deadline(5.0, "a step") as spent:
            asyncio.get_running_loop().call_later(0.02, done.set)
            await processes.call(os.getpid)
        await holding
        await processes.close()
        return spent.waited

    assert run(test) >= 0.02


def test_calls_given_up_leave_an_executor_behind() -> None:
    """Its worker may never come back, so the next call has another executor."""
    stuck = threading.Event()

    async def test() -> int:
        from concurrent.futures import ThreadPoolExecutor

        made: list[ThreadPoolExecutor] = []

        def make() -> ThreadPoolExecutor:
            made.append(ThreadPoolExecutor(1))
            return made[-1]

        workers = ExecutorWorkers(make)
        with pytest.raises(OverdueError):
            async with Deadline(0.01, "a step"):
                await workers.call(stuck.wait, 30)
        assert await workers.call(sys.getrecursionlimit)
        await workers.close()
        return len(made)

    try:
        assert run(test) == 2
    finally:
        stuck.set()
