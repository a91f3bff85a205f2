"""Sampling requests: checked on the event loop, answered in waves on the engine's thread."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from attrs import define, field, frozen
from tinker import types
from tinker.types.topk_logprobs import TopkLogprobs

from rlc.service.errors import ServiceError
from rlc.service.local.model.base import BaseModel, Snapshot
from rlc.service.local.model.packing import IntArray, micro_batches
from rlc.service.local.requests import check_tokens
from rlc.service.local.sampling.decoder import Decoder, Sample
from rlc.service.local.sampling.philox import stream_key
from rlc.service.local.sampling.sampling_rule import Rule
from rlc.service.local.training.trainer import next_logprobs, packed_logprobs
from rlc.service.local.worker import Outcome, Pending


@define(eq=False)
class Engine:
    """A base model with what sampling from it needs; made once for each base model."""

    base: BaseModel
    decoder: Decoder
    token_budget: int  # tokens of a forward pass
    max_rows: int
    max_kv_tokens: int  # rows × tokens that the decoder may hold
    bare: Snapshot = field(factory=lambda: Snapshot(None))  # one, so that its requests batch


@frozen
class Scoring:
    """What a request wants to know of its prompt's own tokens."""

    logprobs: bool = False
    last_n: int | None = None  # of the last tokens only
    topk: int = 0  # the likeliest tokens at each position, so many

    def check(self, length: int, vocabulary: int) -> None:
        """Raise ServiceError for what a prompt of ``length`` tokens cannot give."""
        if self.last_n is not None and not (self.logprobs and 1 <= self.last_n < length):
            raise ServiceError(
                f"prompt_logprobs_last_n = {self.last_n} needs prompt logprobs and a number "
                f"between 1 and {length - 1}, one less than the prompt has tokens."
            )
        if not 0 <= self.topk <= vocabulary:
            raise ServiceError(
                f"topk_prompt_logprobs must be between 0 and {vocabulary}, not {self.topk}."
            )


@frozen(eq=False)
class SampleRequest:
    """A request that has been checked."""

    engine: Engine
    snapshot: Snapshot
    prompt: IntArray
    scoring: Scoring
    number: int
    num_samples: int
    seed: int
    rule: Rule
    limit: int
    stops: Callable[[list[int]], bool]

    def samples(self, cancelled: Callable[[], bool]) -> list[Sample]:
        """The completions to make; each has its own random stream."""
        return [
            Sample(
                self.prompt, stream_key(self.seed, i), self.rule, self.limit, self.stops, cancelled
            )
            for i in range(self.num_samples)
        ]


def read_request(
    engine: Engine,
    snapshot: Snapshot,
    number: int,
    prompt: types.ModelInput,
    num_samples: int,
    params: types.SamplingParams,
    scoring: Scoring,
) -> SampleRequest:
    """Check a request. Raises ServiceError, one sentence, for anything it cannot honour."""
    tokens = check_tokens(prompt, engine.base, "The prompt")
    scoring.check(len(tokens), engine.base.vocabulary)
    if num_samples < 1:
        raise ServiceError(f"num_samples must be at least 1, not {num_samples}.")
    room = engine.base.context - len(tokens)
    limit = room if params.max_tokens is None else params.max_tokens
    if params.max_tokens is not None and params.max_tokens < 1:
        raise ServiceError(f"max_tokens must be at least 1, not {params.max_tokens}.")
    if limit > room or room < 1:
        raise ServiceError(
            f"The prompt's {len(tokens)} tokens and max_tokens = {params.max_tokens} "
            f"exceed the model's context of {engine.base.context}."
        )
    return SampleRequest(
        engine,
        snapshot,
        tokens,
        scoring,
        number,
        num_samples,
        secrets.randbits(64) if params.seed is None else params.seed,
        Rule.of(params),
        limit,
        read_stops(params.stop, engine.base),
    )


def read_logprobs_request(
    engine: Engine, snapshot: Snapshot, number: int, prompt: types.ModelInput
) -> SampleRequest:
    """A request for the prompt's own logprobs: nothing is sampled."""
    tokens = check_tokens(prompt, engine.base, "The prompt")
    greedy = Rule(0.0, -1, 1.0)
    return SampleRequest(
        engine, snapshot, tokens, Scoring(True), number, 0, 0, greedy, 1, lambda _: False
    )


def read_stops(
    stop: str | Sequence[str] | Sequence[int] | None, base: BaseModel
) -> Callable[[list[int]], bool]:
    """Whether a completion has just ended.

    Token ids end it by being sampled, strings by appearing in its text; None stands for the
    model's own end tokens, an empty list for nothing.
    """
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


def run_wave(wave: Sequence[Pending[SampleRequest]]) -> list[Outcome]:
    """Answer requests; those of one snapshot are decoded together, in an order of their own: the
    place in a batch can change the last bits of a result, and who comes first is up to the clock.
    """
    outcomes: dict[int, Outcome] = {}
    together: dict[tuple[Engine, Snapshot], list[Pending[SampleRequest]]] = {}
    for pending in sorted(wave, key=_place):
        key = (pending.request.engine, pending.request.snapshot)
        together.setdefault(key, []).append(pending)
    with torch.inference_mode():
        for (engine, snapshot), some in together.items():
            answers = _decode_together(engine, snapshot, some)
            outcomes.update(zip(map(id, some), answers, strict=True))
    return [outcomes[id(pending)] for pending in wave]


def _place(pending: Pending[SampleRequest]) -> tuple[bytes, int, int]:
    """Requests that are equal in this have the same answer."""
    request = pending.request
    return request.prompt.tobytes(), request.seed, request.num_samples


def _decode_together(
    engine: Engine, snapshot: Snapshot, some: Sequence[Pending[SampleRequest]]
) -> list[types.SampleResponse]:
    made = [p.request.samples(p.future.cancelled) for p in some]
    _decode(engine, snapshot, [sample for samples in made for sample in samples])
    return answer(engine, snapshot, [(p.request, m) for p, m in zip(some, made, strict=True)])


def answer(
    engine: Engine, snapshot: Snapshot, complete: Sequence[tuple[SampleRequest, Sequence[Sample]]]
) -> list[types.SampleResponse]:
    """The responses to requests whose samples are complete; prompts are scored here."""
    asking = [i for i, (request, _) in enumerate(complete) if request.scoring.logprobs]
    logprobs = prompt_logprobs(engine, snapshot, [complete[i][0].prompt for i in asking])
    of_prompt = dict(zip(asking, logprobs, strict=True))
    return [
        _response(request, samples, of_prompt.get(i), prompt_topk(engine, request))
        for i, (request, samples) in enumerate(complete)
    ]


def _decode(engine: Engine, snapshot: Snapshot, samples: Sequence[Sample]) -> None:
    decoder, waiting = engine.decoder, deque(samples)
    decoder.begin(snapshot)
    try:
        while waiting or decoder.samples:
            if joining := admit(engine, waiting):
                decoder.add(joining)
            decoder.step()
    finally:
        decoder.begin(None)


def admit(engine: Engine, waiting: deque[Sample]) -> list[Sample]:
    """As many of the waiting as there is room for, once a quarter of the rows is free."""
    active = engine.decoder.samples
    if active and len(active) > 3 * engine.max_rows // 4:
        return []
    joining: list[Sample] = []
    longest = max((s.longest for s in active), default=0)
    while waiting:
        rows = len(active) + len(joining) + 1
        longest = max(longest, waiting[0].longest)
        full = rows > engine.max_rows or rows * longest > engine.max_kv_tokens
        if full and rows > 1:
            break
        joining.append(waiting.popleft())
    return joining


def prompt_logprobs(
    engine: Engine, snapshot: Snapshot, prompts: Sequence[IntArray]
) -> list[np.ndarray]:
    """Logprobs of each prompt's tokens given those before, NaN for the first."""
    out = [np.full(len(prompt), np.nan, dtype=np.float32) for prompt in prompts]
    longer = [i for i, prompt in enumerate(prompts) if len(prompt) > 1]
    engine.base.use_snapshot(snapshot)
    for run in micro_batches([prompts[i][:-1] for i in longer], engine.token_budget):
        batch = [longer[j] for j in run]
        targets = [prompts[i][1:] for i in batch]
        lp_M = packed_logprobs(engine.base, [prompts[i][:-1] for i in batch], targets)
        pieces = np.split(lp_M.cpu().numpy(), np.cumsum([len(t) for t in targets])[:-1])
        for i, piece in zip(batch, pieces, strict=True):
            out[i][1:] = piece
    return out


def prompt_topk(engine: Engine, request: SampleRequest) -> TopkLogprobs | None:
    """The likeliest tokens at each position of a prompt, with the snapshot switched in.

    Positions that are not scored, the first one among them, hold the SDK's sentinels.
    """
    k, length = request.scoring.topk, len(request.prompt)
    if not k:
        return None
    tokens_TK = np.zeros((length, k), dtype=np.int32)
    logprobs_TK = np.full((length, k), -99999.0, dtype=np.float32)
    if length > 1:
        engine.base.use_snapshot(request.snapshot)
        lp_TV = next_logprobs(engine.base, request.prompt[:-1])
        best = lp_TV.topk(k, dim=-1)
        first = max(1, length - (request.scoring.last_n or length))
        tokens_TK[first:] = best.indices[first - 1 :].cpu().numpy()
        logprobs_TK[first:] = best.values[first - 1 :].cpu().numpy()
    return TopkLogprobs(tokens_TK, logprobs_TK)


def _response(
    request: SampleRequest,
    samples: Sequence[Sample],
    logprobs: np.ndarray | None,
    topk: TopkLogprobs | None,
) -> types.SampleResponse:
    if logprobs is not None and request.scoring.last_n is not None:
        logprobs[: -request.scoring.last_n] = np.nan
    sequences = [
        types.SampledSequence(
            stop_reason=sample.stop_reason or "length",  # a cancelled one is read by nobody
            sequence_id=f"{request.number}-{i}",
            tokens_np=np.array(sample.tokens, dtype=np.int32),
            logprobs_np=np.array(sample.logprobs, dtype=np.float32),
        )
        for i, sample in enumerate(samples)
    ]
    computed = sum(sample.computed for sample in samples)
    return types.SampleResponse(
        sequences=sequences,
        prompt_logprobs_np=logprobs,
        topk_prompt_logprobs_np=topk,
        prompt_cache_hit_tokens=max(len(request.prompt) - computed, 0) if samples else 0,
    )
