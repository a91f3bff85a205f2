"""Promises: accepted work, and its answer, which is kept until it is fetched; and traces of it.

Traces are for https://ui.perfetto.dev, in the format of Chrome's trace events: complete events
("X", microseconds) on numbered tracks. Requests of one sampler overlap, so each goes to the first
track that is free.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

import torch
from attrs import define, field, frozen
from pydantic import BaseModel
from tinker import types

from rlc.service.http import JSON, RefusedRequest
from rlc.service.interface import ServiceError
from rlc.service.server.faults import Disturbances
from rlc.service.server.wire import PROTOBUF, write_output, write_sample

_KEPT = 200_000  # spans of all sessions; the oldest make room


@frozen
class RequestSpan:
    owner: str  # a model or a sampler
    name: str
    started: float  # seconds since the epoch
    ended: float
    failed: bool


def chrome_trace(spans: Iterable[RequestSpan], session_id: str) -> bytes:
    """Return the spans of a session as the JSON of Chrome's trace events."""
    own = [span for span in spans if span.owner.split(":")[0] == session_id]
    events: list[dict[str, Any]] = []
    tracks: dict[str, _Tracks] = {}
    for span in sorted(own, key=lambda span: span.started):
        of_owner = tracks.setdefault(span.owner, _Tracks())
        number, is_new = of_owner.take(span, lambda: 1 + sum(t.used for t in tracks.values()))
        if is_new:
            named = {"name": span.owner.partition(":")[2]}
            events.append(_event("thread_name", "M", number, args=named))
        times = {"ts": span.started * 1e6, "dur": (span.ended - span.started) * 1e6}
        args = {"failed": span.failed}
        events.append(_event(span.name, "X", number, cat="request", args=args, **times))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode()


@define(eq=False)
class _Tracks:
    """The tracks of one owner: the busy ones by when they become free, and the free ones."""

    used: int = 0
    _busy: list[tuple[float, int]] = field(factory=list)
    _free: list[int] = field(factory=list)

    def take(self, span: RequestSpan, next_number: Callable[[], int]) -> tuple[int, bool]:
        """Return the track of a span, and whether it is a new one."""
        while self._busy and self._busy[0][0] <= span.started:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        is_new = not self._free
        number = next_number() if is_new else heapq.heappop(self._free)
        self.used += is_new
        heapq.heappush(self._busy, (span.ended, number))
        return number, is_new


def _event(name: str, phase: str, track: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": phase, "pid": 1, "tid": track, **more}


SAMPLE = "sample"
_POLL_SECONDS = 25.0  # the SDK gives a poll 45
_PAUSE_SECONDS = 0.05
_KEEP_FETCHED = 60.0  # the connection may break while an answer goes out
_KEEP_UNFETCHED = 3600.0
_ABANDONED = 120.0  # seconds without a poll: the SDK polls all the time, and asks anew if it has to

_log = logging.getLogger(__name__)


@frozen
class EncodedReply:
    content: bytes
    content_type: str
    status: int = 200


@define(eq=False)
class Promise:
    id: str
    what: str  # its name in traces
    started: float = field(factory=time.time, init=False)
    reply: EncodedReply | None = field(default=None, init=False)
    refused: bool = field(default=False, init=False)
    fetched: bool = field(default=False, init=False)
    ready: asyncio.Event = field(factory=asyncio.Event, init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def is_sample(self) -> bool:
        return self.what == SAMPLE

    def settle(self, reply: EncodedReply) -> None:
        self.reply = reply
        self.ready.set()


@define(eq=False)
class Futures:
    disturbances: Disturbances = field(factory=Disturbances)
    # Of all sessions, in the order in which they ended.
    spans: deque[RequestSpan] = field(factory=lambda: deque(maxlen=_KEPT), init=False)
    _promises: dict[str, Promise] = field(factory=dict, init=False)  # in the order of their making
    _fetched: deque[tuple[float, str]] = field(factory=deque, init=False)
    # Samples that nobody asks for just now, and since when: the oldest first.
    _unasked: OrderedDict[str, float] = field(factory=OrderedDict, init=False)

    def find(self, request_id: str) -> Promise | None:
        """Return an earlier promise of the same request, unless it was refused."""
        promise = self._promises.get(request_id)
        return None if promise is not None and promise.refused else promise

    @contextmanager
    def keeping_refusals(self, request_id: str) -> Iterator[None]:
        """Keep a refusal as the answer to its promise, for a client that asks for it."""
        try:
            yield
        except (RefusedRequest, ServiceError) as error:
            promise = self.open(request_id, "refused")
            promise.refused = True
            promise.settle(_failure(error))
            raise

    def open(self, request_id: str, what: str) -> Promise:
        """Make a promise, whose work `run` starts."""
        now = time.monotonic()
        self._sweep(now)
        promise = Promise(request_id, what)
        self._promises[request_id] = promise
        if promise.is_sample:
            self._unasked[request_id] = now
        return promise

    def run(
        self, promise: Promise, start: Callable[[], Awaitable[Any]], delay: float = 0.0
    ) -> None:
        """Start the work now, so that the order of calls is the order of work. The answer is held
        back for ``delay`` seconds."""
        if self.disturbances.strikes("slow"):
            delay += self.disturbances.faults.slow_seconds
        if self.disturbances.strikes("stuck"):
            delay = math.inf
        try:
            work = start()
        except Exception as error:
            promise.settle(_failure(error))
            return
        promise.task = asyncio.get_running_loop().create_task(self._finish(promise, work, delay))

    async def _finish(self, promise: Promise, work: Awaitable[Any], delay: float) -> None:
        failed = True
        try:
            reply = _success(await work)
            failed = False
        except asyncio.CancelledError:
            self._promises.pop(promise.id, None)
            promise.ready.set()
            raise
        except Exception as error:
            reply = _failure(error)
        owner = promise.id.rpartition("/")[0]
        span = RequestSpan(owner, promise.what, promise.started, time.time(), failed)
        self.spans.append(span)
        if math.isinf(delay):
            return
        if delay:
            await asyncio.sleep(delay)
        promise.settle(reply)

    async def retrieve(self, request_id: str) -> EncodedReply:
        """Return the answer once it is there, or HTTP 408 after a while, so that the client asks
        again. Raise RefusedRequest (410) for an unknown promise."""
        promise = self._promises.get(request_id)
        # Samples are the only work that can be requested anew.
        if promise is not None and promise.is_sample and self.disturbances.strikes("lost"):
            self.cancel(request_id)
            promise = None
        if promise is None:
            why = "it was answered long ago, cancelled, or the server has been restarted since."
            raise RefusedRequest(410, f"There is no promise {request_id}: {why}")
        if self.disturbances.strikes("paused"):
            await asyncio.sleep(_PAUSE_SECONDS)
            return _try_again("paused_capacity")
        self._unasked.pop(request_id, None)
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await promise.ready.wait()
        if promise.reply is None:
            if request_id not in self._promises:
                raise RefusedRequest(410, f"The promise {request_id} was cancelled.")
            if promise.is_sample:
                self._unasked[request_id] = time.monotonic()
            return _try_again("active")
        if not promise.fetched:
            promise.fetched = True
            self._fetched.append((time.monotonic(), request_id))
        return promise.reply

    def cancel(self, request_id: str) -> None:
        """Drop a promise, if it is known, and stop its work."""
        if promise := self._promises.pop(request_id, None):
            promise.ready.set()
            if promise.task is not None:
                promise.task.cancel()

    def forget(self, owner: str | None = None) -> None:
        """Drop the promises of one model or sampler, or of all."""
        if owner is None:
            self.spans.clear()
        prefix = "" if owner is None else f"{owner}/"
        for request_id in [i for i in self._promises if i.startswith(prefix)]:
            self.cancel(request_id)

    def close(self) -> None:
        """End the polls that wait for an answer."""
        for promise in self._promises.values():
            promise.ready.set()

    def _sweep(self, now: float) -> None:
        """Drop old answers, and stop sampling for clients that have gone."""
        while self._unasked and now - next(iter(self._unasked.values())) > _ABANDONED:
            request_id, _ = self._unasked.popitem(last=False)
            unasked = self._promises.get(request_id)
            if unasked is not None and not unasked.ready.is_set():
                self.cancel(request_id)
        dropped = list[Promise]()
        while self._fetched and now - self._fetched[0][0] > _KEEP_FETCHED:
            if promise := self._promises.get(self._fetched.popleft()[1]):
                dropped.append(promise)
        made_before = time.time() - _KEEP_UNFETCHED
        dropped += takewhile(lambda one: one.started < made_before, self._promises.values())
        for promise in dropped:
            if promise.ready.is_set():
                self._promises.pop(promise.id, None)


def _try_again(queue_state: str) -> EncodedReply:
    content = json.dumps({"type": "try_again", "queue_state": queue_state})
    return EncodedReply(content.encode(), JSON, 408)


def _success(result: BaseModel) -> EncodedReply:
    if isinstance(result, types.SampleResponse):
        return EncodedReply(write_sample(result), PROTOBUF)
    if isinstance(result, types.ForwardBackwardOutput):
        return EncodedReply(write_output(result), PROTOBUF)
    return EncodedReply(result.model_dump_json().encode(), JSON)


def _failure(error: Exception) -> EncodedReply:
    """Encode an error, which the SDK raises as RequestFailedError without another try."""
    expected = isinstance(error, (RefusedRequest, ServiceError))
    mine = not expected or isinstance(error.__cause__, torch.OutOfMemoryError)
    if not expected:
        _log.error("a request failed", exc_info=error)
    failed = types.RequestFailedResponse(
        error=str(error) if expected else f"The server failed: {type(error).__name__}: {error}",
        category=types.RequestErrorCategory.Server if mine else types.RequestErrorCategory.User,
    )
    return EncodedReply(failed.model_dump_json().encode(), JSON)
