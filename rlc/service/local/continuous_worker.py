"""Continuous batching: sampling requests join the running batch between two tokens.

The worker for clients that cannot wait for each other, such as those of a server; see
`rlc.service.local.wave_worker` for the one whose batches follow a program's own order. The
reply to a request does not depend on its batch, up to the rounding of floating-point sums.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from attrs import define, field

from rlc.service.local.model.base_model import Snapshot
from rlc.service.local.sampling.decoder import Sample
from rlc.service.local.sampling.sampler import Engine, SampleRequest, admit, responses
from rlc.service.local.wave_worker import Outcome, Pending, attempt, call_in, closed_error, fulfil

T = TypeVar("T")
Requested = Pending[SampleRequest]


@define(eq=False)
class _Open:
    """A request whose samples are in the batch or about to be."""

    pending: Requested
    samples: list[Sample]
    left: int  # samples that are not complete


@define(eq=False)
class ContinuousBatch:
    """The requests being answered, on the engine's thread.

    One snapshot is decoded at a time. Requests for it join in order of arrival until one for
    other weights has come; from then on all wait for their turn behind it, so that none starves.
    """

    _arrived: deque[Requested] = field(factory=deque, init=False)
    _waiting: deque[Sample] = field(factory=deque, init=False)  # of the current snapshot
    _open: list[_Open] = field(factory=list, init=False)
    _of_sample: dict[int, _Open] = field(factory=dict, init=False)
    _current: tuple[Engine, Snapshot] | None = field(default=None, init=False)

    def join(self, requests: Iterable[Requested]) -> None:
        """Queue requests; they take part from the next turn on."""
        self._arrived.extend(requests)

    @property
    def busy(self) -> bool:
        return bool(self._open or self._arrived)

    def turn(self) -> list[tuple[Requested, Outcome]]:
        """Admit requests, give every row a token, and return the requests that are complete.

        If the engine fails, every request in the batch gets the exception, and the batch is empty.
        """
        replies = attempt(self._turn)
        if not isinstance(replies, BaseException):
            return replies
        failed = [entry.pending for entry in self._open]
        self._clear()
        if not failed:  # none was admitted: the oldest request is the one that cannot be
            failed = [self._arrived.popleft()]
        return [(pending, replies) for pending in failed]

    @torch.inference_mode()
    def _turn(self) -> list[tuple[Requested, Outcome]]:
        engine, snapshot = self._admit_arrived()
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
        if not complete:
            return []
        made = responses(engine, snapshot, [(e.pending.work, e.samples) for e in complete])
        done = {id(entry) for entry in complete}
        self._open = [entry for entry in self._open if id(entry) not in done]
        if not self._open:
            self._clear()
        return [(entry.pending, reply) for entry, reply in zip(complete, made, strict=True)]

    def _admit_arrived(self) -> tuple[Engine, Snapshot]:
        """Open the requests that are next in line, and return what they are sampled from."""
        if not self._open:
            first = self._arrived[0].work
            self._current = (first.engine, first.snapshot)
            first.engine.decoder.begin(first.snapshot)
        assert self._current is not None
        while self._arrived:
            request = self._arrived[0].work
            if (request.engine, request.snapshot) != self._current:
                break
            pending = self._arrived.popleft()
            samples = request.samples(pending.future.cancelled)
            entry = _Open(pending, samples, len(samples))
            self._open.append(entry)
            self._waiting.extend(samples)
            self._of_sample.update((id(sample), entry) for sample in samples)
        return self._current

    def _clear(self) -> None:
        if self._current is not None:
            self._current[0].decoder.begin(None)
        self._current = None
        self._open = []
        self._waiting.clear()
        self._of_sample.clear()


@define(eq=False)
class ContinuousWorker:
    """Jobs in order of submission, and beside them a batch that requests join as they come.

    A job does not wait for the batch to empty, nor the batch for all jobs: after a job the
    batch gets as much time as the job took.
    """

    threads: int
    _batch: ContinuousBatch = field(factory=ContinuousBatch, init=False)
    _jobs: deque[Pending[Callable[[], Any]]] = field(factory=deque, init=False)
    _requests: deque[Requested] = field(factory=deque, init=False)
    _bell: threading.Condition = field(factory=threading.Condition, init=False)
    _closing: bool = field(default=False, init=False)
    _batch_until: float = field(default=0.0, init=False)  # no job before, while it is busy
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="rlc-engine", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a job. It runs even if its future is cancelled: later jobs may build on it."""
        return self._enqueue(self._jobs, job)

    def sample(self, request: SampleRequest) -> asyncio.Future[Any]:
        """Let a request join the batch."""
        return self._enqueue(self._requests, request)

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        with self._bell:
            self._closing = True
            self._bell.notify()
        self._thread.join()

    def _enqueue(self, queue: deque[Pending[T]], work: T) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._bell:
            if self._closing:
                future.set_exception(closed_error())
            else:
                queue.append(Pending(work, future))
                self._bell.notify()
        return future

    def _run(self) -> None:
        # The number of OpenMP threads belongs to the thread that sets it.
        torch.set_num_threads(self.threads)
        while self._wait_for_work():
            if self._jobs and not (self._batch.busy and time.monotonic() < self._batch_until):
                job, started = self._jobs.popleft(), time.monotonic()
                outcome = attempt(job.work)
                ended = time.monotonic()
                self._batch_until = ended + (ended - started)
                call_in(job.future.get_loop(), fulfil, job.future, outcome)
            elif self._batch.busy:
                for pending, outcome in self._batch.turn():
                    call_in(pending.future.get_loop(), fulfil, pending.future, outcome)

    def _wait_for_work(self) -> bool:
        """Wait until there is work; return False once the worker is closed and all is done."""
        with self._bell:
            while not (self._jobs or self._requests or self._batch.busy):
                if self._closing:
                    return False
                self._bell.wait()
            self._batch.join(self._requests)
            self._requests.clear()
        return True
