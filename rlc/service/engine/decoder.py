"""Decoding many sequences at once: rows join (`add`), advance by a token (`step`), and leave.

A prompt that several rows share is computed once and its keys and values written to all of them;
those of an earlier turn come from the prefix cache.

Random numbers are a pure function of a key and a counter: Philox 4×32 with ten rounds (Salmon,
Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A stream has no
state, so that its number ``t`` does not depend on what else is being sampled.

Dimensions: N stream tokens, B active rows, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from attrs import define, field, frozen
from tinker import types
from tinker.types.topk_logprobs import TopkLogprobs
from torch import Tensor

from rlc.service.engine.attention import (
    CacheLayout,
    IntArray,
    KVCache,
    Queries,
    common_prefix,
    length_buckets,
    lexicographic,
    padded,
)
from rlc.service.engine.base_model import BaseModel, CacheEntry, PrefixCache, WeightSnapshot
from rlc.service.interface import ServiceError, TokenMask

UInt64 = npt.NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def stream_key(seed: int, index: int) -> int:
    """Return the 64-bit key of stream ``index`` under ``seed``; any integers."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def philox(counter: tuple[UInt64, UInt64, UInt64, UInt64], key_B: UInt64) -> tuple[UInt64, ...]:
    """Return four 32-bit words (in uint64 arrays) for each key and counter of four such words."""
    x0, x1, x2, x3 = counter
    for turn in range(10):
        key0 = (key_B + np.uint64(turn * _WEYL[0] & 0xFFFFFFFF)) & _LOW
        key1 = ((key_B >> _32) + np.uint64(turn * _WEYL[1] & 0xFFFFFFFF)) & _LOW
        product0, product2 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            (product2 >> _32) ^ x1 ^ key0,
            product2 & _LOW,
            (product0 >> _32) ^ x3 ^ key1,
            product0 & _LOW,
        )
    return x0, x1, x2, x3


def uniforms(key_B: UInt64, t_B: UInt64) -> npt.NDArray[np.float64]:
    """Return number ``t`` of each stream, uniform in [0, 1) with 53 random bits."""
    zero = np.zeros_like(t_B)
    x0, x1, _, _ = philox((t_B & _LOW, t_B >> _32, zero, zero), key_B)
    return ((x0 << np.uint64(21)) | (x1 >> np.uint64(11))).astype(np.float64) * 2.0**-53


# The least temperature above 0 and top_p: logits that are divided by it still fit into float32, and
# only the most likely token is left.
_LEAST = 1e-30
TopkOfToken = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]  # ids and logprobs, [K] each


@frozen
class SamplingRule:
    temperature: float  # 0: the most likely token
    top_k: int  # -1: all
    top_p: float  # 1: all

    @classmethod
    def of(cls, params: types.SamplingParams) -> SamplingRule:
        """Return the rule of a request. Raise ServiceError if a value is out of range."""
        if not 0 <= params.temperature < float("inf"):
            raise ServiceError(f"temperature must be 0 or more, not {params.temperature}.")
        if params.top_k != -1 and params.top_k < 1:
            raise ServiceError(f"top_k must be -1 (all) or at least 1, not {params.top_k}.")
        if not 0 < params.top_p <= 1:
            raise ServiceError(f"top_p must be above 0 and at most 1, not {params.top_p}.")
        temperature = params.temperature and max(params.temperature, _LEAST)
        return cls(temperature, params.top_k, max(params.top_p, _LEAST))

    @property
    def filters(self) -> bool:
        return self.temperature > 0 and (self.top_k != -1 or self.top_p < 1)


def next_tokens(
    logits_BV: Tensor, rules: Sequence[SamplingRule], uniform_B: npt.NDArray[np.float64]
) -> tuple[list[int], list[float]]:
    """Return tokens by inverting the cumulative distribution, and their logprobs. A logprob is that
    of the distribution sampled from: temperature, top-k, top-p and mask included, renormalised. A
    greedy choice (temperature 0) has the logprob of temperature 1."""
    shaped_BV = logits_BV.float()
    if any(rule.temperature not in (0, 1) for rule in rules):
        temperatures = [rule.temperature or 1.0 for rule in rules]
        shaped_BV = shaped_BV / torch.tensor(temperatures, device=shaped_BV.device)[:, None]
    if filtering := [i for i, rule in enumerate(rules) if rule.filters]:
        shaped_BV = shaped_BV.clone()
        shaped_BV[filtering] = _filtered(shaped_BV[filtering], [rules[i] for i in filtering])
    logprobs_BV = torch.log_softmax(shaped_BV, dim=-1)
    token_B1 = invert(logprobs_BV.exp().cumsum(-1, dtype=torch.float64), uniform_B[:, None])
    greedy = [rule.temperature == 0 for rule in rules]
    if any(greedy):
        is_greedy_B1 = torch.tensor(greedy, device=token_B1.device)[:, None]
        token_B1 = torch.where(is_greedy_B1, logits_BV.argmax(-1, keepdim=True), token_B1)
    return token_B1[:, 0].tolist(), logprobs_BV.gather(1, token_B1)[:, 0].tolist()


def invert(cumulative_BV: Tensor, uniform_BK: npt.NDArray[np.float64]) -> Tensor:
    """Return the tokens [B, K] at which a cumulative distribution passes uniform numbers. The
    distribution is float64 and need not add up to 1."""
    total_B1 = cumulative_BV[:, -1:]
    aim_BK = torch.from_numpy(uniform_BK).to(total_B1.device) * total_B1
    # Rounding must not let the aim reach the total: no token lies beyond it.
    aim_BK = torch.minimum(aim_BK, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    return torch.searchsorted(cumulative_BV, aim_BK, right=True)


def topk_tokens(
    logits_BV: Tensor, rules: Sequence[SamplingRule], topk: Sequence[int]
) -> dict[int, TopkOfToken]:
    """Return the ``topk`` most likely tokens of each row that wants some, the most likely first.
    Logprobs are at the row's temperature (1 if it is greedy), before top_k and top_p."""
    rows = [row for row, k in enumerate(topk) if k]
    if not rows:
        return {}
    temperatures = torch.tensor([rules[row].temperature or 1.0 for row in rows])
    tempered_RV = logits_BV[rows].float() / temperatures[:, None].to(logits_BV.device)
    best = torch.log_softmax(tempered_RV, dim=-1).topk(max(topk), dim=-1)
    ids_RK = best.indices.to(torch.int32).cpu().numpy()
    logprobs_RK = best.values.cpu().numpy()
    return {
        row: (ids_K[: topk[row]], logprobs_K[: topk[row]])
        for row, ids_K, logprobs_K in zip(rows, ids_RK, logprobs_RK, strict=True)
    }


def _filtered(logits_BV: Tensor, rules: Sequence[SamplingRule]) -> Tensor:
    """Keep the ``top_k`` most likely, and of those the fewest that reach ``top_p`` together."""
    V = logits_BV.shape[1]
    device = logits_BV.device
    top_k_B1 = torch.tensor(
        [V if r.top_k == -1 else min(r.top_k, V) for r in rules], device=device
    )[:, None]
    top_p_B1 = torch.tensor([r.top_p for r in rules], device=device)[:, None]
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    dropped_BV = torch.arange(V, device=device) >= top_k_B1
    probs_BV = sorted_BV.masked_fill(dropped_BV, -torch.inf).softmax(-1)
    before_BV = probs_BV.cumsum(-1) - probs_BV
    # At top_p = 1 rounding of the sum must drop nothing.
    dropped_BV |= (before_BV >= top_p_B1) & (top_p_B1 < 1)
    kept_BV = sorted_BV.masked_fill(dropped_BV, -torch.inf)
    return torch.empty_like(logits_BV).scatter_(1, order_BV, kept_BV)


@define(eq=False)
class RunningSample:
    prompt: IntArray
    key: int  # of its random stream
    rule: SamplingRule
    limit: int  # tokens, at least 1
    stops: Callable[[list[int]], bool]
    cancelled: Callable[[], bool]
    topk: int = 0  # how many of the most likely tokens are kept beside each sampled one
    on_token: Callable[[RunningSample], None] | None = None  # called after each token
    mask: TokenMask | None = None
    tokens: list[int] = field(factory=list, init=False)
    logprobs: list[float] = field(factory=list, init=False)
    topk_logprobs: list[TopkOfToken] = field(factory=list, init=False)
    stop_reason: Literal["stop", "length"] | None = field(default=None, init=False)
    computed: int = field(default=0, init=False)  # prompt tokens computed for this sample

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.tokens)

    @property
    def longest(self) -> int:
        return len(self.prompt) + self.limit

    def stacked_topk(self) -> TopkLogprobs | None:
        if not self.topk_logprobs:
            return None
        return TopkLogprobs(*map(np.stack, zip(*self.topk_logprobs, strict=True)))

    def accept(self, token: int, logprob: float, topk: TopkOfToken | None) -> bool:
        """Append a token, and return whether the sample is complete."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if topk is not None:
            self.topk_logprobs.append(topk)
        if self.stops(self.tokens):
            self.stop_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.stop_reason = "length"
        if self.on_token is not None:
            self.on_token(self)
        return self.stop_reason is not None


def _masked(logits_BV: Tensor, samples: Sequence[RunningSample]) -> Tensor:
    """Return logits in which only what the samples' masks allow can be sampled."""
    rows = [(row, s, s.mask) for row, s in enumerate(samples) if s.mask is not None]
    logits_BV = logits_BV.clone() if rows else logits_BV
    for row, sample, mask in rows:
        allowed_V = np.zeros(logits_BV.shape[1], dtype=np.bool_)
        known = mask.allowed(sample.tokens, sample.limit - len(sample.tokens))
        allowed_V[: len(known)] = known
        logits_BV[row, torch.from_numpy(~allowed_V).to(logits_BV.device)] = -torch.inf
    return logits_BV


@frozen(eq=False)
class Fill:
    """The source of the keys and values of a row's prompt. The first ``copied`` tokens are copied
    from ``entry``; token ``copied + i`` is number ``path[i]`` of the stream, to which the row adds
    the last ``own``."""

    entry: CacheEntry | None
    copied: int
    path: IntArray
    own: int


def plan_fills(
    prompts: Sequence[IntArray], found: Sequence[tuple[CacheEntry | None, int]]
) -> list[Fill]:
    """Return how to fill rows whose prompts are in lexicographic order. ``found`` are each prompt's
    best cache entry and the number of tokens shared with it. A row takes that, or the prefix shared
    with the row before it, whichever is longer; its last token is always in the stream, for its
    logits."""
    fills: list[Fill] = []
    size = 0
    for i, (prompt, (entry, cached)) in enumerate(zip(prompts, found, strict=True)):
        cached = min(cached, len(prompt) - 1)
        shared = common_prefix(prompts[i - 1], prompt) if i else 0
        head = np.empty(0, dtype=np.int64)
        copied = cached
        if fills and shared > cached:
            entry, copied = fills[-1].entry, min(fills[-1].copied, shared)
            head = fills[-1].path[: shared - copied]
        own = len(prompt) - copied - len(head)
        fills.append(Fill(entry, copied, np.concatenate([head, np.arange(size, size + own)]), own))
        size += own
    return fills


@define(eq=False)
class Decoder:
    """Active rows over one base model, all of the snapshot given to `begin`."""

    base: BaseModel
    prefixes: PrefixCache
    chunk: int  # stream tokens computed at once in a prefill
    kv: KVCache = field(init=False)
    samples: list[RunningSample] = field(factory=list, init=False)
    _snapshot: WeightSnapshot | None = field(default=None, init=False)
    _logits_BV: Tensor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.kv = KVCache(self.base.depth, self.base.device, self.base.dtype)
        self.begin(None)

    def begin(self, snapshot: WeightSnapshot | None) -> None:
        """Drop all rows and decode with a snapshot's weights from now on."""
        self._snapshot = snapshot
        if snapshot is not None:
            self.base.use_snapshot(snapshot)
        self.samples = []
        self._logits_BV = torch.empty(0, self.base.vocabulary, device=self.base.device)

    def add(self, samples: Sequence[RunningSample]) -> None:
        """Add samples: compute the part of their prompts that is new."""
        assert self._snapshot is not None
        joining = [samples[i] for i in lexicographic([s.prompt for s in samples])]
        prompts = [s.prompt for s in joining]
        fills = plan_fills(prompts, [self.prefixes.longest(self._snapshot, p) for p in prompts])
        first = len(self.samples)
        self.kv.reserve(first + len(joining), max(map(len, prompts)))
        for row, (sample, fill) in enumerate(zip(joining, fills, strict=True), start=first):
            sample.computed += fill.own
            if fill.entry is not None and fill.copied:
                self.kv.paste(row, fill.entry.cut[:, :, : fill.copied])
        logits = self._prefill(prompts, fills, first)
        self.samples += joining
        self._logits_BV = torch.cat([self._logits_BV, logits])

    def keep_prompts(self, joined: int) -> None:
        """Cache the prompts of the last ``joined`` rows now, for further requests."""
        assert self._snapshot is not None
        for row in range(len(self.samples) - joined, len(self.samples)):
            prompt = self.samples[row].prompt
            if self.prefixes.longest(self._snapshot, prompt)[1] < len(prompt):
                self.prefixes.put(self._snapshot, prompt, self.kv.cut(row, len(prompt)))

    def step(self) -> list[RunningSample]:
        """Sample a token for each row; return the samples that are complete, or were cancelled."""
        keys_B = np.array([s.key for s in self.samples], dtype=np.uint64)
        t_B = np.array([len(s.tokens) for s in self.samples], dtype=np.uint64)
        rules = [s.rule for s in self.samples]
        logits_BV = _masked(self._logits_BV, self.samples)
        tokens, logprobs = next_tokens(logits_BV, rules, uniforms(keys_B, t_B))
        best = topk_tokens(self._logits_BV, rules, [s.topk for s in self.samples])
        leaving = [
            row
            for row, sample in enumerate(self.samples)
            if sample.accept(tokens[row], logprobs[row], best.get(row)) or sample.cancelled()
        ]
        gone = [self.samples[row] for row in leaving]
        self._retire(leaving)
        self._advance()
        return gone

    def _prefill(self, prompts: Sequence[IntArray], fills: Sequence[Fill], first: int) -> Tensor:
        """Compute the stream in chunks, and return the logits [rows, V] after each prompt. It can
        be cut anywhere, since a row's tokens follow those shared with earlier rows."""
        own = [fill.own for fill in fills]
        tokens_N = np.concatenate([p[len(p) - n :] for p, n in zip(prompts, own, strict=True)])
        positions_N = np.concatenate(
            [np.arange(len(p) - n, len(p)) for p, n in zip(prompts, own, strict=True)]
        )
        rows_N = np.repeat(np.arange(first, first + len(fills)), own)
        last = np.array([fill.path[-1] for fill in fills])
        source_W = np.concatenate([fill.path for fill in fills])
        row_W = np.repeat(np.arange(first, first + len(fills)), [len(f.path) for f in fills])
        position_W = np.concatenate([np.arange(f.copied, f.copied + len(f.path)) for f in fills])
        wanted, where = np.unique(last, return_inverse=True)
        logits = []
        for start in range(0, len(tokens_N), self.chunk):
            end = min(start + self.chunk, len(tokens_N))
            here_W = (source_W >= start) & (source_W < end)
            written = source_W[here_W] - start, row_W[here_W], position_W[here_W]
            tokens, positions = tokens_N[start:end], positions_N[start:end]
            layout = self._chunk_layout(*written, rows_N[start:end], positions)
            keep = self._to(wanted[(wanted >= start) & (wanted < end)] - start)
            logits.append(self.base.logits(tokens, positions, layout, keep))
        return torch.cat(logits)[self._to(where)]

    def _chunk_layout(
        self,
        source_W: IntArray,
        row_W: IntArray,
        position_W: IntArray,
        rows_N: IntArray,
        positions_N: IntArray,
    ) -> CacheLayout:
        rows, starts, counts = np.unique(rows_N, return_index=True, return_counts=True)
        queries, out_N, offset = [], np.empty(len(rows_N), dtype=np.int64), 0
        for members in length_buckets(list(counts), waste=0.5):
            spans = [np.arange(starts[m], starts[m] + counts[m]) for m in members]
            stream_RQ = padded(spans).to(self.base.device)
            positions_RQ = padded([positions_N[span] for span in spans]).to(self.base.device)
            for i, span in enumerate(spans):
                out_N[span] = offset + i * stream_RQ.shape[1] + np.arange(len(span))
            offset += stream_RQ.numel()
            keys = max(int(positions_N[span[-1]]) for span in spans) + 1
            chosen = self._to(rows[members])
            queries.append(Queries(chosen, stream_RQ.flatten(), positions_RQ, keys))
        written = self._to(source_W), self._to(row_W), self._to(position_W)
        return CacheLayout(self.kv, *written, queries, self._to(out_N))

    def _retire(self, leaving: list[int]) -> None:
        """Cache the keys and values of leaving rows, and close the gaps with the last rows."""
        assert self._snapshot is not None
        for row in leaving:
            sample = self.samples[row]
            computed = np.concatenate([sample.prompt, np.array(sample.tokens[:-1], dtype=np.int64)])
            self.prefixes.put(self._snapshot, computed, self.kv.cut(row, len(computed)))
        left = len(self.samples) - len(leaving)
        out = set(leaving)
        gaps = [row for row in leaving if row < left]
        movers = [row for row in range(left, len(self.samples)) if row not in out]
        if movers:
            kv, length = self.kv.tensor, max(self.samples[mover].length for mover in movers) - 1
            kv[:, gaps, :, :length] = kv[:, movers, :, :length]
        for gap, mover in zip(gaps, movers, strict=True):
            self.samples[gap] = self.samples[mover]
        self.samples = self.samples[:left]

    def _advance(self) -> None:
        B = len(self.samples)
        if not B:
            self._logits_BV = self._logits_BV[:0]
            return
        positions_B = np.array([s.length for s in self.samples], dtype=np.int64) - 1
        longest = int(positions_B.max()) + 1
        self.kv.reserve(B, longest)
        rows = torch.arange(B, device=self.base.device)
        positions = self._to(positions_B)
        queries = Queries(B, None, positions[:, None], keys=longest)
        layout = CacheLayout(self.kv, None, rows, positions, [queries], None)
        tokens_B = np.array([s.tokens[-1] for s in self.samples], dtype=np.int64)
        self._logits_BV = self.base.logits(tokens_B, positions_B, layout, rows)

    def _to(self, array: IntArray) -> Tensor:
        return torch.from_numpy(array).to(self.base.device)
