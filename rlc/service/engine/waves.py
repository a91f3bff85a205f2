"""One thread that computes, and the waves in which sampling requests reach it.

The event loop never waits for a computation: jobs are queued in the order of submission. Sampling
requests are batched in *waves*. A wave leaves when every job submitted before its first
request is done and the loop has then turned a few times without a new request: it holds all that
the program can request before it needs a reply. For replies of environments
(`rlc.service.interface`) it waits until none has come for about a second, for the program's own
computations as long as they take. A wave depends on the program's own order and not on the clock,
so that the same program gives the same numbers to the last bit, unless its environments take
longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from attrs import define, field

from rlc.service.interface import ServiceError, calls_of

# Turns of the loop without a new request, and in which no call begins or ends. A task that wakes up
# may pass its result on through a few others (gather, a queue, a lock) before the next request.
_QUIET_TURNS = 20
# Looks for pending calls that may bring more requests, and seconds between them. Looks are counted
# and not seconds, which also pass while the machine is busy or a disk is slow.
_LOOKS, _POLL = 1_000, 0.001

_T = TypeVar("_T")
Work = TypeVar("Work")
Outcome = Any  # a result, or the exception that took its place


@define(eq=False)
class PendingRequest(Generic[Work]):
    work: Work
    future: asyncio.Future[Any]


def attempt(job: Callable[[], _T]) -> _T | BaseException:
    try:
        return job()
    except torch.OutOfMemoryError as error:
        advice = ServiceError("The device ran out of memory; use fewer or shorter sequences.")
        advice.__cause__ = error
        return advice
    except BaseException as error:
        return error


def fulfil(future: asyncio.Future[Any], outcome: Outcome) -> None:
    """Set a future to an outcome, unless it was cancelled."""
    if future.cancelled():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """Call something in the loop of another thread, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def closed_error() -> ServiceError:
    return ServiceError("The local engine has been closed.")


@define(eq=False)
class _Loop(Generic[Work]):
    """The state of the worker for one event loop; only that loop's thread uses it."""

    waiting: list[PendingRequest[Work]] = field(factory=list)
    submitted: int = 0
    done: int = 0
    barrier: int = 0  # jobs that must be done before the waiting requests leave
    quiet: int = 0
    turning: bool = False
    changes: int = 0  # of pending calls, when it was last looked at
    looks: int = 0  # at calls that the next wave waits for, since anything happened


@define(eq=False)
class WaveWorker(Generic[Work]):
    """Runs jobs and waves. ``run_wave`` returns a result or an exception for each request."""

    run_wave: Callable[[Sequence[PendingRequest[Work]]], Sequence[Outcome]]
    threads: int
    _executor: ThreadPoolExecutor = field(init=False)
    _loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop[Work]] = field(
        factory=WeakKeyDictionary, init=False
    )

    def __attrs_post_init__(self) -> None:
        # The number of OpenMP threads belongs to the thread that sets it.
        self._executor = ThreadPoolExecutor(
            1, "rlc-engine", initializer=torch.set_num_threads, initargs=(self.threads,)
        )

    def submit(self, job: Callable[[], _T]) -> asyncio.Future[_T]:
        """Queue a job. It runs even if its future is cancelled: later jobs may build on it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._start(loop, lambda: [attempt(job)], [future])
        return future

    def sample(self, request: Work) -> asyncio.Future[Any]:
        """Let a request leave with the next wave."""
        loop = asyncio.get_running_loop()
        state = self._loops.setdefault(loop, _Loop())
        if not state.waiting:
            state.barrier = state.submitted
        pending = PendingRequest(request, loop.create_future())
        state.waiting.append(pending)
        self._turn_from_start(loop, state)
        return pending.future

    def close(self) -> None:
        self._executor.shutdown()

    def _turn_from_start(self, loop: asyncio.AbstractEventLoop, state: _Loop[Work]) -> None:
        state.quiet = 0
        if not state.turning:
            state.turning = True
            loop.call_soon(self._turn, loop, state)

    def _turn(self, loop: asyncio.AbstractEventLoop, state: _Loop[Work]) -> None:
        calls = calls_of(loop)
        if state.changes != calls.changes:
            state.quiet = state.looks = 0
            state.changes = calls.changes
        state.quiet += 1
        if state.quiet <= _QUIET_TURNS:
            loop.call_soon(self._turn, loop, state)
            return
        if calls.ours or (calls.environments and state.looks < _LOOKS):
            state.looks += 1
            loop.call_later(_POLL, self._turn, loop, state)
            return
        state.turning, state.looks = False, 0
        if state.waiting and state.done >= state.barrier:
            wave = [p for p in state.waiting if not p.future.cancelled()]
            state.waiting = []

            def answer() -> Sequence[Outcome]:
                """If the wave fails as a whole, every request gets the exception."""
                outcome = attempt(lambda: self.run_wave(wave))
                return [outcome] * len(wave) if isinstance(outcome, BaseException) else outcome

            self._start(loop, answer, [p.future for p in wave])

    def _start(
        self,
        loop: asyncio.AbstractEventLoop,
        job: Callable[[], Sequence[Outcome]],
        futures: Sequence[asyncio.Future[Any]],
    ) -> None:
        state = self._loops.setdefault(loop, _Loop())
        state.submitted += 1

        def deliver(outcomes: Sequence[Outcome]) -> None:
            state.done += 1
            for future, outcome in zip(futures, outcomes, strict=True):
                fulfil(future, outcome)
            if state.waiting:
                self._turn_from_start(loop, state)

        try:
            self._executor.submit(lambda: call_in(loop, deliver, job()))
        except RuntimeError:  # the executor has been shut down
            deliver([closed_error()] * len(futures))
