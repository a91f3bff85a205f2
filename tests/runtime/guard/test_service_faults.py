"""A bad day, in every overlap: a run ends as an undisturbed one, or with the first cause at once.

The double of the engine with faults around it, and environments with faults in them. What the
official SDK and the served engine do on such days is in tests/service/hosted.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from plain_service import PlainSamplingClient, PlainTrainingClient
from run_support import metrics, rollouts, run, run_new, tiny, train, undisturbed

from rlc.envs.gem.guess import GuessSource
from rlc.plan.parts import DeadlinesPlan
from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.service_guard import Watchdog
from rlc.runtime.summary import Observer
from rlc.service.interface import ServiceError, ServiceLostError

pytestmark = pytest.mark.plain

OVERLAPS = {
    "synchronous": {"overlap": "synchronous()"},
    "streamed": {"overlap": "streamed(minibatches = 2)"},
    "asynchronous": {"loss": "ppo()", "overlap": "asynchronous(max_staleness = 2)"},
}


def overlaps(sample: str) -> pytest.MarkDecorator:
    """All of them with RLC_EVERY_FAULT in the environment, else one, another for each test."""
    chosen = list(OVERLAPS) if os.environ.get("RLC_EVERY_FAULT") else [sample]
    return pytest.mark.parametrize("overlap", chosen)


def job(overlap: str, **fields: str) -> Plan:
    defaults = {
        "steps": "3",
        "batch": "groups(2, group_size = 2)",
        "sampling": "sample(max_tokens = 6)",
    }
    return tiny(train(**(defaults | {"save": "every(2)"} | OVERLAPS[overlap] | fields)))


def rewards(path: Path) -> list[tuple[int, int, int, float]]:
    return [(r["step"], r["task"], r["member"], r["reward"]) for r in rollouts(path)]


def expected(overlap: str) -> list[tuple[int, int, int, float]]:
    """The rewards of the job in an overlap when nothing goes wrong."""
    return rewards(undisturbed(job(overlap)))


def wrap(
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    method: str,
    disturb: Callable[[int, Awaitable[Any]], Awaitable[Any]],
) -> list[int]:
    """Put ``disturb`` around each answer of a client's method; return the numbers of its calls."""
    real, calls = getattr(kind, method), list[int]()

    def disturbed(client: Any, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        calls.append(len(calls))
        return asyncio.ensure_future(disturb(calls[-1], real(client, *args, **kwargs)))

    monkeypatch.setattr(kind, method, disturbed)
    return calls


async def never(answer: Awaitable[Any]) -> Any:
    await answer
    await asyncio.Event().wait()


@overlaps("asynchronous")
def test_a_reply_that_never_comes_ends_the_run_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: str
) -> None:
    with monkeypatch.context() as patch:
        wrap(patch, PlainSamplingClient, "sample", lambda n, a: never(a) if n == 5 else a)
        started = time.monotonic()
        with pytest.raises(ServiceLostError, match=r"answered nothing for 1 s, and owes"):
            run_new(tmp_path / "run", job(overlap, deadlines="deadlines(request = 1s)"))
        assert time.monotonic() - started < 60
    run(RunFolder.resume(tmp_path / "run"))
    assert rewards(tmp_path / "run") == expected(overlap)


@overlaps("streamed")
def test_a_gradient_that_never_comes_ends_the_run_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: str
) -> None:
    with monkeypatch.context() as patch:
        stuck = wrap(
            patch,
            PlainTrainingClient,
            "forward_backward",
            lambda n, answer: never(answer) if n == 1 else answer,
        )
        with pytest.raises(ServiceLostError, match=r"owes the gradient of \d+ sequences"):
            run_new(tmp_path / "run", job(overlap, deadlines="deadlines(request = 1s)"))
        assert len(stuck) >= 2
    run(RunFolder.resume(tmp_path / "run"))
    assert rewards(tmp_path / "run") == expected(overlap)


@overlaps("asynchronous")
def test_slow_tails_change_nothing_while_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: str
) -> None:
    async def late(number: int, answer: Awaitable[Any]) -> Any:
        await asyncio.sleep(0.05 if number % 4 == 1 else 0.0)
        return await answer

    wrap(monkeypatch, PlainSamplingClient, "sample", late)
    run_new(tmp_path / "run", job(overlap, sampling="sample(max_tokens = 6, concurrency = 3)"))
    assert rewards(tmp_path / "run") == expected(overlap)
    assert metrics(tmp_path / "run")[0]["service/concurrency"] == 3


@overlaps("synchronous")
def test_a_service_that_fails_surfaces_its_first_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: str
) -> None:
    async def dead(number: int, answer: Awaitable[Any]) -> Any:
        made = await answer
        if number >= 3:
            raise ServiceLostError(f"the machine room burns (call {number})")
        return made

    with monkeypatch.context() as patch:
        wrap(patch, PlainSamplingClient, "sample", dead)
        with pytest.raises(ServiceLostError, match="the machine room burns"):
            run_new(tmp_path / "run", job(overlap))
    run(RunFolder.resume(tmp_path / "run"))
    assert rewards(tmp_path / "run") == expected(overlap)


def test_a_step_that_takes_too_long_says_what_it_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap(monkeypatch, PlainTrainingClient, "optim_step", lambda _, answer: never(answer))
    with pytest.raises(RunError, match=r"took longer than 1 s; .* owed an optimiser step"):
        run_new(tmp_path / "run", job("synchronous", deadlines="deadlines(step = 1s)"))


@define(eq=False)
class Trouble:
    """What is wrong with the game: ``broken`` says which of its episodes fail, and how."""

    broken: Callable[[int], str] = lambda _: ""
    opened: int = field(default=0, init=False)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    """Episodes that crash, or give a reward that is no number."""
    found, real = Trouble(), GuessSource.group

    def group(source: GuessSource, seed: int, size: int) -> list[Any]:
        episodes = []
        for episode in real(source, seed, size):
            found.opened += 1
            how = found.broken(found.opened)
            episodes.append(Broken(episode, how) if how else episode)
        return episodes

    monkeypatch.setattr(GuessSource, "group", group)
    return found


@define
class Broken:
    """An episode whose steps fail."""

    episode: Any
    how: str

    @property
    def first(self) -> Any:
        return self.episode.first

    def step(self, action: str) -> Any:
        if self.how == "crash":
            raise OSError("the game is broken")
        return evolve(self.episode.step(action), reward=float("nan"))


@overlaps("streamed")
@pytest.mark.parametrize(("how", "said"), [("crash", "the game is broken"), ("nan", "nan")])
def test_a_hopeless_environment_ends_the_run_and_mended_it_goes_on(
    tmp_path: Path, trouble: Trouble, overlap: str, how: str, said: str
) -> None:
    trouble.broken = lambda _: how
    plan = job(overlap, give_up="failures(steps = 2)", steps="4", save="every(50)")
    with pytest.raises(RunError, match="in each of the last 2 steps no rollout could be used") as e:
        run_new(tmp_path / "run", plan)
    assert said in str(e.value).lower()
    lost = metrics(tmp_path / "run")
    assert [(r["optim/skipped"], r["rollouts/played"]) for r in lost] == [(1, 0), (1, 0)]
    assert "reward/mean" not in lost[0]
    trouble.broken = lambda _: ""
    assert run(RunFolder.resume(tmp_path / "run")).state == "finished"
    mended = metrics(tmp_path / "run")
    assert [r["step"] for r in mended] == [1, 2, 3, 4]
    assert all(r["rollouts/failed"] == 0 for r in mended[2:])


@overlaps("asynchronous")
def test_episodes_that_crash_now_and_then_are_played_again(
    tmp_path: Path, trouble: Trouble, overlap: str
) -> None:
    trouble.broken = lambda number: "crash" if number % 5 == 2 else ""
    run_new(tmp_path / "run", job(overlap, on_error="retry(3) then drop"))
    for record in metrics(tmp_path / "run"):
        assert (record["rollouts/played"], record["rollouts/failed"]) == (4, 0)


def test_a_batch_of_turns_in_which_all_fail_is_a_lost_step_and_no_endless_one(
    tmp_path: Path, trouble: Trouble
) -> None:
    trouble.broken = lambda _: "crash"
    plan = tiny(train(batch="turns(8, parallel = 4)", advantage="rebn()", steps="3"))
    with pytest.raises(RunError, match="the game is broken"):
        run_new(tmp_path / "run", plan)
    assert len(metrics(tmp_path / "run")) == 3


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_batch_of_turns_ends_short_once_as_many_replies_are_lost(
    tmp_path: Path, trouble: Trouble
) -> None:
    trouble.broken = lambda number: "crash" if number % 8 else ""
    fields = {"batch": "turns(14, parallel = 8)", "advantage": "rebn()", "steps": "2"}
    observer = Notes()
    run_new(tmp_path / "run", tiny(train(**fields, on_error="drop")), observer=observer)
    for record in metrics(tmp_path / "run"):
        turns = record["turns/mean"] * record["rollouts/played"]
        assert (0 < turns < 14, record["rollouts/failed"]) == (True, 14)
    (note,) = (text for text in observer.notes if "lost" in text)
    assert re.match(r"step 1 trains on \d of 14 turns: 14 replies were lost with rollouts", note)


SHORT = DeadlinesPlan(request=60.0, unreachable=0.05, step=None)


def test_a_server_out_of_reach_is_told_at_once_and_given_up_in_time() -> None:
    notes: list[str] = []

    async def away() -> None:
        raise ServiceError("cannot reach far.away: connection refused")

    async def scenario() -> None:
        watch = Watchdog(notes.append, away, SHORT, every=0.01)
        others = asyncio.create_task(watch.until("another", asyncio.Event().wait()))
        with pytest.raises(ServiceLostError, match="connection refused; it owes an answer"):
            await watch.until("an answer", asyncio.Event().wait())
        with pytest.raises(ServiceLostError):
            await others

    asyncio.run(scenario())
    assert notes == ["cannot reach far.away: connection refused; trying for 50 ms"]


def test_a_server_that_is_there_again_is_not_given_up() -> None:
    calls = iter([True, False] * 1_000)

    async def flaky() -> None:
        if next(calls):
            raise ServiceError("away")

    async def scenario() -> int:
        watch = Watchdog(lambda _: None, flaky, SHORT, every=0.01)
        return await watch.until("an answer", asyncio.sleep(0.3, 7))

    assert asyncio.run(scenario()) == 7


def test_a_service_that_says_why_it_is_silent_is_waited_for() -> None:
    async def scenario() -> int:
        watch = Watchdog(lambda _: None, None, DeadlinesPlan(0.1, 1.0, None))
        asyncio.get_running_loop().call_later(0.07, watch.heard)
        return await watch.until("an answer", asyncio.sleep(0.14, 7))

    assert asyncio.run(scenario()) == 7


def test_cancelling_a_wait_cancels_what_was_asked_and_blames_nobody() -> None:
    async def scenario() -> None:
        watch = Watchdog(lambda _: None)
        asked = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(watch.until("an answer", asked))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asked.cancelled()

    asyncio.run(scenario())
