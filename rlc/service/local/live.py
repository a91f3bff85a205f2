"""Serving many clients from one thread: requests join the running batch between two tokens.

The worker for programs that cannot wait for each other, such as the clients of a server; see
`rlc.service.local.worker.Worker` for the one whose batches follow a program's own order. What
a request is answered does not depend on its batch, up to the rounding of the floating-point
sums in it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from attrs import define, field, frozen

from rlc.service.errors import ServiceError
from rlc.service.local.model.base import Snapshot
from rlc.service.local.sampling.decoder import Sample
from rlc.service.local.sampling.sampler import Engine, SampleRequest, admit, answer
from rlc.service.local.worker import Outcome, Pending, attempt

T = TypeVar("T")
Asked = Pending[SampleRequest]


@define(eq=False)
class _Open:
    """A request whose samples are in the batch or about to be."""

    pending: Asked
    samples: list[Sample]
    left: int  # samples that are not complete


@define(eq=False)
class LiveBatch:
    """The requests being answered, on the engine's thread.

    One snapshot is decoded at a time. Requests for it join in order of arrival until one for
    other weights has come; those then wait for their turn behind it, so that none starves.
    """

    _arrived: deque[Asked] = field(factory=deque, init=False)
    _waiting: deque[Sample] = field(factory=deque, init=False)  # of the current snapshot
    _open: list[_Open] = field(factory=list, init=False)
    _of_sample: dict[int, _Open] = field(factory=dict, init=False)
    _current: tuple[Engine, Snapshot] | None = field(default=None, init=False)

    def join(self, requests: Iterable[Asked]) -> None:
        """Queue requests; they take part from the next turn on."""
        self._arrived.extend(requests)

    @property
    def busy(self) -> bool:
        return bool(self._open or self._arrived)

    def turn(self) -> list[tuple[Asked, Outcome]]:
        """Let requests in and give every row a token; the requests that are now answered.

        If the engine fails, every request in the batch hears why, and the batch is empty.
        """
        answers = attempt(self._turn)
        if not isinstance(answers, BaseException):
            return answers
        failed = [entry.pending for entry in self._open]
        self._clear()
        if not failed:  # none was let in: the oldest request is the one that cannot be
            failed = [self._arrived.popleft()]
        return [(pending, answers) for pending in failed]

    @torch.inference_mode()
    def _turn(self) -> list[tuple[Asked, Outcome]]:
        self._let_in()
        assert self._current is not None
        engine, snapshot = self._current
        engine.base.use_snapshot(snapshot)  # a job may have switched other weights in
        decoder = engine.decoder
        if joining := admit(engine, self._waiting):
            decoder.add(joining)
            decoder.keep_prompts(len(joining))
        complete = [entry for entry in self._open if not entry.samples]
        for sample in decoder.step() if decoder.samples else ():
            entry = self._of_sample.pop(id(sample))
            entry.left -= 1
            if not entry.left:
                complete.append(entry)
        return self._answered(complete)

    def _let_in(self) -> None:
        if not self._open:
            first = self._arrived[0].request
            self._current = (first.engine, first.snapshot)
            first.engine.decoder.begin(first.snapshot)
        while self._arrived and self._is_current(self._arrived[0].request):
            pending = self._arrived.popleft()
            samples = pending.request.samples(pending.future.cancelled)
            entry = _Open(pending, samples, len(samples))
            self._open.append(entry)
            self._waiting.extend(samples)
            self._of_sample.update((id(sample), entry) for sample in samples)

    def _is_current(self, request: SampleRequest) -> bool:
        return self._current == (request.engine, request.snapshot)

    def _answered(self, complete: list[_Open]) -> list[tuple[Asked, Outcome]]:
        if not complete:
            return []
        assert self._current is not None
        engine, snapshot = self._current
        done = {id(entry) for entry in complete}
        responses = answer(
            engine, snapshot, [(entry.pending.request, entry.samples) for entry in complete]
        )
        self._open = [entry for entry in self._open if id(entry) not in done]
        if not self._open:
            self._clear()
        return [(entry.pending, r) for entry, r in zip(complete, responses, strict=True)]

    def _clear(self) -> None:
        if self._current is not None:
            self._current[0].decoder.begin(None)
        self._current = None
        self._open = []
        self._waiting.clear()
        self._of_sample.clear()


@frozen(eq=False)
class _Job:
    run: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


@define(eq=False)
class LiveWorker:
    """Jobs in order of submission, and beside them a batch that requests join as they come.

    A job does not wait for the batch to empty, nor the batch for all jobs: after a job the
    batch gets as much time as the job took.
    """

    threads: int
    _batch: LiveBatch = field(factory=LiveBatch, init=False)
    _jobs: deque[_Job] = field(factory=deque, init=False)
    _requests: deque[Asked] = field(factory=deque, init=False)
    _bell: threading.Condition = field(factory=threading.Condition, init=False)
    _closing: bool = field(default=False, init=False)
    _batch_until: float = field(default=0.0, init=False)  # no job before, while it is busy
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="rlc-engine", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a job. It runs even if its future is cancelled: later jobs may build on it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._bell:
            if self._closing:
                future.set_exception(ServiceError("The local engine has been closed."))
            else:
                self._jobs.append(_Job(job, future, loop))
                self._bell.notify()
        return future

    def sample(self, request: SampleRequest) -> asyncio.Future[Any]:
        """Let a request join the batch."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._bell:
            if self._closing:
                future.set_exception(ServiceError("The local engine has been closed."))
            else:
                self._requests.append(Pending(request, future))
                self._bell.notify()
        return future

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        with self._bell:
            self._closing = True
            self._bell.notify()
        self._thread.join()

    def _run(self) -> None:
        # The number of OpenMP threads belongs to the thread that sets it.
        torch.set_num_threads(self.threads)
        while self._wait_for_work():
            if self._jobs and not (self._batch.busy and time.monotonic() < self._batch_until):
                self._do_job(self._jobs.popleft())
            elif self._batch.busy:
                for pending, outcome in self._batch.turn():
                    _deliver(pending.future.get_loop(), pending.future, outcome)

    def _wait_for_work(self) -> bool:
        """Whether there is any; False once the worker is closed and all is done."""
        with self._bell:
            while not (self._jobs or self._requests or self._batch.busy):
                if self._closing:
                    return False
                self._bell.wait()
            self._batch.join(self._requests)
            self._requests.clear()
        return True

    def _do_job(self, job: _Job) -> None:
        started = time.monotonic()
        outcome = attempt(job.run)
        ended = time.monotonic()
        self._batch_until = ended + (ended - started)
        _deliver(job.loop, job.future, outcome)


def _deliver(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], outcome: Outcome
) -> None:
    def settle() -> None:
        if future.cancelled():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        if not loop.is_closed():  # a closed loop has nobody left to tell
            raise
