"""Decoding many sequences at once: rows join (`add`), advance by a token (`step`), and leave.

A prompt that several rows share is computed once and its keys and values written to all of
them; what an earlier turn computed is taken from the prefix cache. Finished rows leave the
batch. Dimensions: N stream tokens, B active rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from attrs import define, field, frozen
from torch import Tensor

from rlc.service.local.model.attention import CacheLayout, Queries, padded
from rlc.service.local.model.base_model import BaseModel, Snapshot
from rlc.service.local.model.kv_cache import KVCache
from rlc.service.local.model.packing import (
    IntArray,
    common_prefix,
    length_buckets,
    lexicographic,
)
from rlc.service.local.model.prefix_cache import Entry, PrefixCache
from rlc.service.local.sampling.next_token import (
    Likeliest,
    SamplingRule,
    likeliest_tokens,
    next_tokens,
)
from rlc.service.local.sampling.random_streams import uniforms


@define(eq=False)
class Sample:
    """One completion in the making."""

    prompt: IntArray
    key: int  # of its random stream
    rule: SamplingRule
    limit: int  # tokens, at least 1
    stops: Callable[[list[int]], bool]
    cancelled: Callable[[], bool]
    topk: int = 0  # how many of the likeliest tokens are kept beside each sampled one
    on_token: Callable[[Sample], None] | None = None  # called after each token
    tokens: list[int] = field(factory=list, init=False)
    logprobs: list[float] = field(factory=list, init=False)
    likeliest: list[Likeliest] = field(factory=list, init=False)
    stop_reason: Literal["stop", "length"] | None = field(default=None, init=False)
    computed: int = field(default=0, init=False)  # prompt tokens computed for this sample

    @property
    def length(self) -> int:
        """The number of its tokens, prompt included."""
        return len(self.prompt) + len(self.tokens)

    @property
    def longest(self) -> int:
        """The number of tokens it may reach."""
        return len(self.prompt) + self.limit

    def accept(self, token: int, logprob: float, likeliest: Likeliest | None) -> bool:
        """Append a token; True once the sample is complete."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if likeliest is not None:
            self.likeliest.append(likeliest)
        if self.stops(self.tokens):
            self.stop_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.stop_reason = "length"
        if self.on_token is not None:
            self.on_token(self)
        return self.stop_reason is not None


@frozen(eq=False)
class Fill:
    """Where the keys and values of one row's prompt come from.

    The first ``copied`` tokens are copied from ``entry``; token ``copied + i`` is number
    ``path[i]`` of the stream, of which the row itself brought in the last ``own``.
    """

    entry: Entry | None
    copied: int
    path: IntArray
    own: int


def plan_fills(
    prompts: Sequence[IntArray], found: Sequence[tuple[Entry | None, int]]
) -> list[Fill]:
    """Decide how to fill rows, prompts in lexicographic order.

    ``found`` gives each prompt's best cache entry and the tokens shared with it. A row takes
    that, or what it shares with the row before it, whichever is longer; its last token is
    always in the stream, for its logits.
    """
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
    """Active rows over one base model. All rows are of the snapshot given to `begin`."""

    base: BaseModel
    prefixes: PrefixCache
    chunk: int  # stream tokens computed at once in a prefill
    kv: KVCache = field(init=False)
    samples: list[Sample] = field(factory=list, init=False)
    _snapshot: Snapshot | None = field(default=None, init=False)
    _logits_BV: Tensor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.kv = KVCache(self.base.depth, self.base.device, self.base.dtype)
        self.begin(None)

    def begin(self, snapshot: Snapshot | None) -> None:
        """Drop all rows and decode with this snapshot's weights from now on."""
        self._snapshot = snapshot
        if snapshot is not None:
            self.base.use_snapshot(snapshot)
        self.samples = []
        self._logits_BV = torch.empty(0, self.base.vocabulary, device=self.base.device)

    def add(self, samples: Sequence[Sample]) -> None:
        """Let samples join: compute what is new of their prompts."""
        assert self._snapshot is not None
        joining = [samples[i] for i in lexicographic([s.prompt for s in samples])]
        prompts = [s.prompt for s in joining]
        fills = plan_fills(prompts, [self.prefixes.longest(self._snapshot, p) for p in prompts])
        first = len(self.samples)
        self.kv.reserve(first + len(joining), max(map(len, prompts)))
        for row, (sample, fill) in enumerate(zip(joining, fills, strict=True), start=first):
            sample.computed += fill.own
            if fill.entry is not None and fill.copied:
                self.kv.paste(row, fill.entry.cut, fill.copied)
        logits = self._prefill(prompts, fills, first)
        self.samples += joining
        self._logits_BV = torch.cat([self._logits_BV, logits])

    def keep_prompts(self, joined: int) -> None:
        """Put the prompts of the last ``joined`` rows into the cache now, not when they leave:
        for requests that come while these are being decoded."""
        assert self._snapshot is not None
        for row in range(len(self.samples) - joined, len(self.samples)):
            prompt = self.samples[row].prompt
            if self.prefixes.longest(self._snapshot, prompt)[1] < len(prompt):
                self.prefixes.put(self._snapshot, prompt, self.kv.cut(row, len(prompt)))

    def step(self) -> list[Sample]:
        """Give every row a token; return the samples that are complete, or were cancelled."""
        keys_B = np.array([s.key for s in self.samples], dtype=np.uint64)
        t_B = np.array([len(s.tokens) for s in self.samples], dtype=np.uint64)
        rules = [s.rule for s in self.samples]
        tokens, logprobs = next_tokens(self._logits_BV, rules, uniforms(keys_B, t_B))
        best = likeliest_tokens(self._logits_BV, rules, [s.topk for s in self.samples])
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
        """Compute the stream in chunks; logits [rows, V] after each prompt.

        A row's tokens follow those it shares with earlier rows, so cutting the stream
        anywhere keeps causes before effects.
        """
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
            layout = self._chunk_layout(
                source_W[here_W] - start,
                row_W[here_W],
                position_W[here_W],
                rows_N[start:end],
                positions_N[start:end],
            )
            keep = wanted[(wanted >= start) & (wanted < end)] - start
            logits.append(
                self.base.logits(
                    tokens_N[start:end], positions_N[start:end], layout, self._to(keep)
                )
            )
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
            queries.append(
                Queries(self._to(rows[members]), stream_RQ.flatten(), positions_RQ, keys)
            )
        return CacheLayout(
            self.kv,
            self._to(source_W),
            self._to(row_W),
            self._to(position_W),
            queries,
            self._to(out_N),
        )

    def _retire(self, leaving: list[int]) -> None:
        """Keep what the leaving rows computed, and close the gaps with the last rows."""
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
            self.kv.move(movers, gaps, max(self.samples[mover].length for mover in movers) - 1)
        for gap, mover in zip(gaps, movers, strict=True):
            self.samples[gap] = self.samples[mover]
        self.samples = self.samples[:left]

    def _advance(self) -> None:
        """Compute the last token of every row, for the logits of the next."""
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
