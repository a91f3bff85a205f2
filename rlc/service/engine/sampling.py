"""Sampling requests: checked on the event loop, answered in batches on the engine's thread.

With `run_wave` and `rlc.service.engine.waves` the batches follow a program's own order. With
`ContinuousWorker` requests join the running batch between two tokens, for clients that cannot wait
for each other, such as those of a server. The reply to a request does not depend on its batch, up
to the rounding of floating-point sums.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from attrs import define, field, frozen
from tinker import types

from rlc.service.engine.attention import IntArray
from rlc.service.engine.base_model import BaseModel, WeightSnapshot
from rlc.service.engine.decoder import Decoder, RunningSample, SamplingRule, stream_key
from rlc.service.engine.scoring import ScoringRequest, prompt_logprobs, prompt_scores
from rlc.service.engine.waves import Outcome, PendingRequest, attempt, call_in, closed_error, fulfil
from rlc.service.interface import SampledToken, ServiceError, TokenMask

MOST_SAMPLES = 65_536  # of one request: each takes memory at once

_numbers = itertools.count()


@define(eq=False)
class Engine:
    base: BaseModel
    decoder: Decoder
    token_budget: int  # tokens of a forward pass
    max_rows: int
    max_kv_tokens: int  # rows × tokens that the decoder may hold
    # One, so that its requests share a batch.
    bare: WeightSnapshot = field(factory=lambda: WeightSnapshot(None))


@frozen(eq=False)
class SampleRequest:
    engine: Engine
    snapshot: WeightSnapshot
    prompt: IntArray
    scoring: ScoringRequest
    num_samples: int
    seed: int
    rule: SamplingRule
    limit: int
    stops: Callable[[list[int]], bool]
    on_token: Callable[[SampledToken], None] | None = None
    masks: Callable[[], TokenMask] | None = None  # one for each sample
    number: int = field(factory=lambda: next(_numbers), init=False)  # for its samples' ids

    def samples(self, cancelled: Callable[[], bool]) -> list[RunningSample]:
        """Return the completions to sample; each has its own random stream."""
        how = self.rule, self.limit, self.stops, cancelled, self.scoring.sample_topk
        return [
            RunningSample(
                self.prompt,
                stream_key(self.seed, i),
                *how,
                None if self.on_token is None else partial(self._report, i),
                None if self.masks is None else self.masks(),
            )
            for i in range(self.num_samples)
        ]

    def _report(self, i: int, sample: RunningSample) -> None:
        assert self.on_token is not None
        ids, logprobs = sample.topk_logprobs[-1] if sample.topk_logprobs else ((), ())
        topk = tuple(zip(map(int, ids), map(float, logprobs), strict=True))
        last = sample.tokens[-1], sample.logprobs[-1]
        self.on_token(SampledToken(i, *last, topk, sample.stop_reason))


def read_request(
    engine: Engine,
    snapshot: WeightSnapshot,
    prompt: types.ModelInput,
    num_samples: int,
    params: types.SamplingParams,
    scoring: ScoringRequest,
    on_token: Callable[[SampledToken], None] | None = None,
    masks: Callable[[], TokenMask] | None = None,
) -> SampleRequest:
    """Check a request. Raise ServiceError if it cannot be carried out."""
    tokens = engine.base.token_ids(prompt, "The prompt")
    scoring.check(len(tokens), engine.base.vocabulary)
    if not 1 <= num_samples <= MOST_SAMPLES:
        raise ServiceError(
            f"num_samples must be at least 1 and at most {MOST_SAMPLES:,}, not {num_samples}."
        )
    room = engine.base.context - len(tokens)
    limit = room if params.max_tokens is None else params.max_tokens
    if params.max_tokens is not None and params.max_tokens < 1:
        raise ServiceError(f"max_tokens must be at least 1, not {params.max_tokens}.")
    if limit > room or room < 1:
        raise ServiceError(
            f"The prompt's {len(tokens)} tokens and max_tokens = {params.max_tokens} "
            f"exceed the model's context of {engine.base.context}."
        )
    seed = secrets.randbits(64) if params.seed is None else params.seed
    rule, stops = SamplingRule.of(params), read_stops(params.stop, engine.base)
    how = num_samples, seed, rule, limit, stops, on_token, masks
    return SampleRequest(engine, snapshot, tokens, scoring, *how)


def read_logprobs_request(
    engine: Engine, snapshot: WeightSnapshot, prompt: types.ModelInput
) -> SampleRequest:
    """Check a request for the prompt's own logprobs, without samples."""
    tokens = engine.base.token_ids(prompt, "The prompt")
    scoring, rule = ScoringRequest(logprobs=True), SamplingRule(0.0, -1, 1.0)
    return SampleRequest(engine, snapshot, tokens, scoring, 0, 0, rule, 1, lambda _: False)


def read_stops(
    stop: str | Sequence[str] | Sequence[int] | None, base: BaseModel
) -> Callable[[list[int]], bool]:
    """Return a function that tells whether a completion has just ended: with one of the token ids,
    or a string in its text. None stands for the model's end tokens, an empty list for nothing."""
    if stop is None:
        ends = base.end_tokens
        return lambda tokens: tokens[-1] in ends
    items: list[Any] = [stop] if isinstance(stop, str) else list(stop)
    if all(isinstance(item, int) for item in items):
        ids = frozenset(items)
        return lambda tokens: tokens[-1] in ids
    if not all(isinstance(item, str) and item for item in items):
        raise ServiceError("stop must be strings (none of them empty) or token ids, not a mix.")
    tokenizer = base.decoding_tokenizer
    # A token adds a byte of text or more, so a stop that ends here began this far back.
    reach = max(len(item.encode()) for item in items) + 4

    def stops(tokens: list[int]) -> bool:
        text = tokenizer.decode(tokens[-reach:], skip_special_tokens=False)
        return any(item in text for item in items)

    return stops


def run_wave(wave: Sequence[PendingRequest[SampleRequest]]) -> list[Outcome]:
    """Answer requests; those of one snapshot are decoded together. They are sorted, since the place
    in a batch can change the last bits of a result, and the order of arrival is up to the clock."""

    def place(pending: PendingRequest[SampleRequest]) -> tuple[bytes, int, int]:
        request = pending.work
        return request.prompt.tobytes(), request.seed, request.num_samples

    replies: dict[int, Outcome] = {}
    together: dict[tuple[Engine, WeightSnapshot], list[PendingRequest[SampleRequest]]] = {}
    for pending in sorted(wave, key=place):
        together.setdefault((pending.work.engine, pending.work.snapshot), []).append(pending)
    with torch.inference_mode():
        for (engine, snapshot), some in together.items():
            complete = [(p.work, p.work.samples(p.future.cancelled)) for p in some]
            waiting = deque(sample for _, samples in complete for sample in samples)
            decoder = engine.decoder
            decoder.begin(snapshot)
            try:
                while waiting or decoder.samples:
                    if joining := admit(engine, decoder.samples, waiting):
                        decoder.add(joining)
                    decoder.step()
            finally:
                decoder.begin(None)
            answers = responses(engine, snapshot, complete)
            replies.update(zip(map(id, some), answers, strict=True))
    return [replies[id(pending)] for pending in wave]


def responses(
    engine: Engine,
    snapshot: WeightSnapshot,
    complete: Sequence[tuple[SampleRequest, Sequence[RunningSample]]],
) -> list[types.SampleResponse]:
    """Return the responses to requests whose samples are complete, and score their prompts."""
    scored = [request.prompt for request, _ in complete if request.scoring.logprobs]
    scores = iter(prompt_logprobs(engine.base, snapshot, scored, engine.token_budget))
    answers = []
    for request, samples in complete:
        logprobs = next(scores) if request.scoring.logprobs else None
        if logprobs is not None and request.scoring.last_n is not None:
            logprobs[: -request.scoring.last_n] = np.nan
        wanted = request.prompt, request.scoring, request.rule.temperature, request.seed
        sequences = [
            types.SampledSequence(
                stop_reason=sample.stop_reason or "length",  # a cancelled one is never read
                sequence_id=f"{request.number}-{j}",
                tokens_np=np.array(sample.tokens, dtype=np.int32),
                logprobs_np=np.array(sample.logprobs, dtype=np.float32),
                topk_logprobs_np=sample.stacked_topk(),
            )
            for j, sample in enumerate(samples)
        ]
        computed = sum(sample.computed for sample in samples)
        answers.append(
            types.SampleResponse(
                sequences=sequences,
                prompt_logprobs_np=logprobs,
                prompt_cache_hit_tokens=max(len(request.prompt) - computed, 0) if samples else 0,
                **prompt_scores(engine.base, snapshot, *wanted),
            )
        )
    return answers


def admit(
    engine: Engine, active: Sequence[RunningSample], waiting: deque[RunningSample], held: int = 0
) -> list[RunningSample]:
    """Remove from ``waiting`` as many as there is room for beside the ``active`` ones, once a
    quarter of the rows is free, and at least one if there are none. ``held`` are rows × tokens
    that the engine's other batches hold."""
    if active and len(active) > 3 * engine.max_rows // 4:
        return []
    joining: list[RunningSample] = []
    longest = max((s.longest for s in active), default=0)
    while waiting:
        rows = len(active) + len(joining) + 1
        longest = max(longest, waiting[0].longest)
        full = rows > engine.max_rows or rows * longest + held > engine.max_kv_tokens
        if full and rows > 1:
            break
        joining.append(waiting.popleft())
    return joining


_T = TypeVar("_T")
Requested = PendingRequest[SampleRequest]


@define(eq=False)
class _OpenRequest:
    pending: Requested
    samples: list[RunningSample]
    left: int  # samples that are not complete


@define(eq=False)
class ContinuousBatch:
    """The requests for one snapshot that are under way, on the engine's thread. They join in order
    of arrival."""

    engine: Engine
    snapshot: WeightSnapshot
    decoder: Decoder
    arrived: deque[Requested] = field(factory=deque, init=False)  # they join in the next turn
    _waiting: deque[RunningSample] = field(factory=deque, init=False)
    _open: list[_OpenRequest] = field(factory=list, init=False)
    _of_sample: dict[int, _OpenRequest] = field(factory=dict, init=False)

    @property
    def busy(self) -> bool:
        return bool(self._open or self.arrived)

    @property
    def held(self) -> int:
        """The rows × tokens for which its decoder has room."""
        samples = self.decoder.samples
        return len(samples) * max((sample.longest for sample in samples), default=0)

    def turn(self, held: int) -> list[tuple[Requested, Outcome]]:
        """Admit requests, give every row a token, and return the requests that are complete. If the
        engine fails, every request in the batch gets the exception, and the batch is empty.
        ``held`` is that of the engine's other batches."""
        replies = attempt(lambda: self._turn(held))
        if not isinstance(replies, BaseException):
            return replies
        failed = [entry.pending for entry in self._open]
        self._clear()
        if not failed:  # none was admitted: the oldest request is the one that cannot be
            failed = [self.arrived.popleft()]
        return [(pending, replies) for pending in failed]

    @torch.inference_mode()
    def _turn(self, held: int) -> list[tuple[Requested, Outcome]]:
        engine, decoder = self.engine, self.decoder
        if self._open:
            engine.base.use_snapshot(self.snapshot)  # others may have been switched in
        else:
            decoder.begin(self.snapshot)
        while self.arrived:
            pending = self.arrived.popleft()
            samples = pending.work.samples(pending.future.cancelled)
            entry = _OpenRequest(pending, samples, len(samples))
            self._open.append(entry)
            self._waiting.extend(samples)
            self._of_sample.update((id(sample), entry) for sample in samples)
        if joining := admit(engine, decoder.samples, self._waiting, held):
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
        work = [(entry.pending.work, entry.samples) for entry in complete]
        answers = responses(engine, self.snapshot, work)
        done = {id(entry) for entry in complete}
        self._open = [entry for entry in self._open if id(entry) not in done]
        if not self._open:
            self._clear()
        return [(entry.pending, reply) for entry, reply in zip(complete, answers, strict=True)]

    def _clear(self) -> None:
        self.decoder.begin(None)
        self._open = []
        self._waiting.clear()
        self._of_sample.clear()


_SLICE = 0.25  # seconds for which weights have the engine before others have their turn


@define(eq=False)
class ContinuousBatches:
    """The batches under way, one for each snapshot, on the engine's thread. They take turns, so
    that no weights wait until others are done."""

    _batches: OrderedDict[tuple[Engine, WeightSnapshot], ContinuousBatch] = field(
        factory=OrderedDict, init=False
    )
    _until: float = field(default=0.0, init=False)  # the first batch has its turn

    @property
    def busy(self) -> bool:
        return bool(self._batches)

    def add(self, request: Requested) -> None:
        """Let a request join the batch of its snapshot in the next turn of that."""
        engine, snapshot = key = (request.work.engine, request.work.snapshot)
        if key not in self._batches:
            decoder = engine.decoder
            if any(batch.decoder is decoder for batch in self._batches.values()):
                decoder = Decoder(engine.base, decoder.prefixes, decoder.chunk)
            self._batches[key] = ContinuousBatch(engine, snapshot, decoder)
        self._batches[key].arrived.append(request)

    def turn(self) -> list[tuple[Requested, Outcome]]:
        """Advance the batch whose turn it is, and return its requests that are complete."""
        now = time.monotonic()
        if now >= self._until:
            self._batches.move_to_end(next(iter(self._batches)))
            self._until = now + _SLICE
        key, batch = next(iter(self._batches.items()))
        others = (b for b in self._batches.values() if b.engine is batch.engine and b is not batch)
        replies = batch.turn(sum(other.held for other in others))
        if not batch.busy:
            del self._batches[key]
            self._until = time.monotonic() + _SLICE
        return replies


@define(eq=False)
class ContinuousWorker:
    """Runs jobs in order of submission, and beside them batches that requests join at any time. A
    job does not wait for a batch to empty, nor a batch for all jobs: after a job the batches get as
    much time as the job took."""

    threads: int
    _batches: ContinuousBatches = field(factory=ContinuousBatches, init=False)
    _jobs: deque[PendingRequest[Callable[[], Any]]] = field(factory=deque, init=False)
    _requests: deque[Requested] = field(factory=deque, init=False)
    _bell: threading.Condition = field(factory=threading.Condition, init=False)
    _closing: bool = field(default=False, init=False)
    _batches_until: float = field(default=0.0, init=False)  # no job before, while they are busy
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="rlc-engine", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], _T]) -> asyncio.Future[_T]:
        """Queue a job. It runs even if its future is cancelled: later jobs may build on it."""
        return self._enqueue(self._jobs, job)

    def sample(self, request: SampleRequest) -> asyncio.Future[Any]:
        return self._enqueue(self._requests, request)

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        with self._bell:
            self._closing = True
            self._bell.notify()
        self._thread.join()

    def _enqueue(self, queue: deque[PendingRequest[_T]], work: _T) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._bell:
            if self._closing:
                future.set_exception(closed_error())
            else:
                queue.append(PendingRequest(work, future))
                self._bell.notify()
        return future

    def _run(self) -> None:
        # The number of OpenMP threads belongs to the thread that sets it.
        torch.set_num_threads(self.threads)
        while self._wait_for_work():
            if self._jobs and not (self._batches.busy and time.monotonic() < self._batches_until):
                job, started = self._jobs.popleft(), time.monotonic()
                outcome = attempt(job.work)
                ended = time.monotonic()
                self._batches_until = ended + (ended - started)
                call_in(job.future.get_loop(), fulfil, job.future, outcome)
            elif self._batches.busy:
                for pending, outcome in self._batches.turn():
                    call_in(pending.future.get_loop(), fulfil, pending.future, outcome)

    def _wait_for_work(self) -> bool:
        """Wait until there is work; return False once the worker is closed and all is done."""
        with self._bell:
            while not (self._jobs or self._requests or self._batches.busy):
                if self._closing:
                    return False
                self._bell.wait()
            while self._requests:
                self._batches.add(self._requests.popleft())
        return True
