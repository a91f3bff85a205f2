"""Attention over a stream of tokens in which each shared prefix occurs once.

In lexicographic order the longest prefix that a sequence shares with any earlier one is the one it
shares with its neighbour, so that sorting and one comparison each build the prefix tree. A sequence
is then a *path*: for each of its tokens, the place in the stream.

The model sees one batch row of ``N`` tokens, so its linear layers compute nothing twice and nothing
for padding. Only attention has to know which tokens belong together: it is registered with
transformers under ``NAME`` and uses the current layout. While decoding, keys and values are in a
cache, one row for each sequence, the active ones in front: these are read as a view, without
copying, and the last active row takes the place of a finished one.

Dimensions: N stream tokens, H heads, K key-value heads, D head size, R rows, Q queries, T keys; of
the cache X keys and values of all layers (layer 0's keys, its values, layer 1's keys, …), S rows,
C capacity in tokens, W tokens to write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from attrs import define, field, frozen
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface

from rlc.service.interface import ServiceError

IntArray = npt.NDArray[np.int64]


@frozen(eq=False)
class Pack:
    """``N`` stream tokens; a path for each sequence, in the order the sequences were given."""

    tokens_N: IntArray
    positions_N: IntArray
    owner_N: IntArray  # the first sequence with the token
    paths: tuple[IntArray, ...]


def sort_key(tokens: IntArray) -> bytes:
    """Return bytes that sort as the tokens do, a prefix before its extensions."""
    return tokens.astype(">u4").tobytes()


def common_prefix(a: IntArray, b: IntArray) -> int:
    """Return the number of leading tokens that two sequences share."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    return int(differ.argmax()) if differ.any() else n


def lexicographic(sequences: Sequence[IntArray]) -> list[int]:
    """Return the indices of the sequences in lexicographic order; the sort is stable."""
    return sorted(range(len(sequences)), key=lambda i: sort_key(sequences[i]))


def pack(sequences: Sequence[IntArray]) -> Pack:
    """Lay out the prefix tree of ``sequences`` (each at least one token)."""
    paths: list[IntArray] = [np.empty(0, dtype=np.int64)] * len(sequences)
    tokens, positions, owners = [], [], []
    size = 0
    before = path = paths[0]
    for i in lexicographic(sequences):
        shared = common_prefix(before, sequences[i])
        new = len(sequences[i]) - shared
        paths[i] = np.concatenate([path[:shared], np.arange(size, size + new)])
        tokens.append(sequences[i][shared:])
        positions.append(np.arange(shared, shared + new))
        owners.append(np.full(new, i))
        size += new
        before, path = sequences[i], paths[i]
    return Pack(
        np.concatenate(tokens), np.concatenate(positions), np.concatenate(owners), tuple(paths)
    )


def micro_batches(sequences: Sequence[IntArray], budget: int) -> Iterator[list[int]]:
    """Cut the lexicographic order into runs of at most ``budget`` tokens (at least one sequence
    each). Neighbours, which share prefixes, stay together, and the runs do not depend on the order
    of ``sequences``."""
    run: list[int] = []
    used = 0
    for i in lexicographic(sequences):
        if run and used + len(sequences[i]) > budget:
            yield run
            run, used = [], 0
        run.append(i)
        used += len(sequences[i])
    if run:
        yield run


def length_buckets(lengths: Sequence[int], waste: float = 0.15) -> list[list[int]]:
    """Group indices by length so that padding adds at most ``waste`` to each group."""
    buckets: list[list[int]] = []
    filled = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        filled += lengths[i]
        if buckets and lengths[buckets[-1][0]] * (len(buckets[-1]) + 1) <= (1 + waste) * filled:
            buckets[-1].append(i)
        else:
            buckets.append([i])
            filled = lengths[i]
    return buckets


_ROOM = 64  # tokens by which the capacity grows, at least


@define(eq=False)
class KVCache:
    """One tensor [X, S, K, C, D], created at the first write, when K and D are known."""

    layers: int
    device: torch.device
    dtype: torch.dtype = torch.float32
    rows: int = 0
    capacity: int = 0
    _kv: Tensor | None = None

    @property
    def tensor(self) -> Tensor:
        assert self._kv is not None, "nothing has been written yet"
        return self._kv

    def reserve(self, rows: int, length: int) -> None:
        """Make room for rows of ``length`` tokens."""
        if rows <= self.rows and length <= self.capacity:
            return
        old, had_rows, had = self._kv, self.rows, self.capacity
        self.rows = max(rows, had_rows)
        if length > had:
            self.capacity = max(length + _ROOM, had * 3 // 2)
        if old is not None:
            self._kv = self._empty(old.shape[2], old.shape[4])
            self._kv[:, :had_rows, :, :had] = old

    def slots(self, row_W: Tensor, position_W: Tensor, heads: int) -> Tensor:
        """Return the indices of the tokens' heads among the S·K·C of a layer: [W, K] → W·K."""
        rows_WK = row_W[:, None] * heads + torch.arange(heads, device=self.device)
        return (rows_WK * self.capacity + position_W[:, None]).flatten()

    def write(self, layer: int, slots: Tensor, k_WKD: Tensor, v_WKD: Tensor) -> None:
        """Write keys and values at the `slots` of their tokens."""
        if k_WKD.shape != v_WKD.shape:
            raise ServiceError("The local engine needs keys and values of the same shape.")
        if self._kv is None:
            self._kv = self._empty(k_WKD.shape[1], k_WKD.shape[2])
        D = self._kv.shape[4]
        for place, x_WKD in ((2 * layer, k_WKD), (2 * layer + 1, v_WKD)):
            self._kv[place].view(-1, D).index_copy_(0, slots, x_WKD.reshape(-1, D))

    def read(self, layer: int, rows: Tensor | int, length: int) -> tuple[Tensor, Tensor]:
        """Return the first ``length`` tokens of some rows; a view of the first ones for a count."""
        k, v = self.tensor[2 * layer], self.tensor[2 * layer + 1]
        chosen = slice(rows) if isinstance(rows, int) else rows
        return k[chosen, :, :length], v[chosen, :, :length]

    def paste(self, row: int, cut_XKTD: Tensor) -> None:
        """Write a copy that `cut` has made to the beginning of a row."""
        if self._kv is None:
            self._kv = self._empty(cut_XKTD.shape[1], cut_XKTD.shape[3])
        self._kv[:, row, :, : cut_XKTD.shape[2]] = cut_XKTD

    def cut(self, row: int, length: int) -> Tensor:
        """Return a copy of the first ``length`` tokens of a row: [X, K, T, D]."""
        return self.tensor[:, row, :, :length].clone()

    def _empty(self, heads: int, size: int) -> Tensor:
        # Zeros, not garbage: hidden keys have weight 0, and 0 × NaN would still be NaN.
        shape = (2 * self.layers, self.rows, heads, self.capacity, size)
        return torch.zeros(shape, device=self.device, dtype=self.dtype)


NAME = "rlc_stream"


@frozen
class AttentionHeads:
    """The parameters of a layer's attention."""

    layer: int
    scale: float
    window: int | None  # keys this far back and further are hidden
    softcap: float | None


# Of each thread: an engine runs on one, and a process may have several engines.
_current: ContextVar[AttentionLayout] = ContextVar("layout")


@contextmanager
def using(layout: AttentionLayout) -> Iterator[None]:
    """Use a layout for the calls of this thread."""
    before = _current.set(layout)
    try:
        yield
    finally:
        _current.reset(before)


def stream_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 (the layout decides)
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend for a layer of transformers; tensors are [1, heads, N, D]."""
    for name in ("s_aux", "position_bias", "score_mod"):  # which no layout knows
        if options.get(name) is not None:
            raise ServiceError(f"The local engine does not support this model: it uses {name}.")
    head = AttentionHeads(
        layer=int(module.layer_idx),  # type: ignore[arg-type]
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=options.get("sliding_window"),
        softcap=options.get("softcap"),
    )
    out_NHD = _current.get().attend(  # LookupError outside `using(layout)`
        head, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
    )
    return out_NHD.unsqueeze(0), None


AttentionInterface.register(NAME, stream_attention)


def scaled_dot_product(
    q: Tensor, k: Tensor, v: Tensor, head: AttentionHeads, bias: Tensor | None
) -> Tensor:
    """Return the attention of [R, H, Q, D] queries over [R, K, T, D] keys, H a multiple of K.
    ``bias`` ([R or 1, 1, Q, T]) is added to the scores: 0 if a query may see a key, else -inf.
    Without one, queries see the keys up to their own index; a softcap needs one."""
    if bias is None:
        return scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=head.scale, enable_gqa=q.shape[1] != k.shape[1]
        )
    R, H, Q, _ = q.shape
    K = k.shape[1]
    # The heads that share keys become further queries: nothing is repeated in memory.
    folded = q.reshape(R, K, H // K * Q, -1)
    tiled = bias if Q == 1 else bias.repeat(1, 1, H // K, 1)
    # The fused kernel loses to plain products for a single query, in float32 on a CPU. In bfloat16
    # it is what keeps the scores in float32, as it does for the trainer.
    if head.softcap is None and (Q > 1 or q.dtype != torch.float32):
        out = scaled_dot_product_attention(folded, k, v, attn_mask=tiled, scale=head.scale)
    else:
        scores = (folded.float() * head.scale) @ k.float().mT
        if head.softcap is not None:
            scores = head.softcap * torch.tanh(scores / head.softcap)
        out = (scores + tiled).softmax(-1).to(v.dtype) @ v
    return out.reshape(R, H, Q, -1)


def hide_unseen(
    q_positions: Tensor, k_positions: Tensor, window: int | None, dtype: torch.dtype
) -> Tensor:
    """Return 0 if a query at one position may see a key at another, else -inf; broadcasts."""
    hidden = k_positions > q_positions
    if window is not None:
        hidden = hidden | (k_positions <= q_positions - window)
    bias = torch.zeros(hidden.shape, device=hidden.device, dtype=dtype)
    return bias.masked_fill_(hidden, -math.inf)


@frozen(eq=False)
class PackLayout:
    """Each path of a pack attends to itself, causally; differentiable. Each path is gathered with
    its shared prefix: recomputing the prefix's attention, whose outputs are dropped, is cheaper
    than the mask that would avoid it."""

    paths_RT: tuple[Tensor, ...]  # buckets, padded at the end
    owner_N: Tensor  # index of each stream token in the concatenated outputs of the buckets

    @classmethod
    def of(cls, pack: Pack, device: torch.device) -> PackLayout:
        """Lay out the paths that own tokens, in buckets of similar length."""
        owning = np.unique(pack.owner_N)
        buckets, offset = list[Tensor](), 0
        start_of_path = np.zeros(len(pack.paths), dtype=np.int64)
        for members in length_buckets([len(pack.paths[i]) for i in owning]):
            path_RT = padded([pack.paths[owning[m]] for m in members])
            rows, width = path_RT.shape
            start_of_path[owning[members]] = offset + width * np.arange(rows)
            buckets.append(path_RT.to(device))
            offset += rows * width
        owner_N = torch.from_numpy(start_of_path[pack.owner_N] + pack.positions_N)
        return cls(tuple(buckets), owner_N.to(device))

    def attend(self, head: AttentionHeads, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        outs = []
        for path_RT in self.paths_RT:
            q, k, v = (
                x.index_select(0, path_RT.flatten())
                .view(*path_RT.shape, *x.shape[1:])
                .transpose(1, 2)
                for x in (q_NHD, k_NKD, v_NKD)
            )
            bias, width = None, path_RT.shape[1]
            if head.softcap is not None or (head.window is not None and width > head.window):
                at = torch.arange(width, device=q.device)
                bias = hide_unseen(at[:, None], at, head.window, q.dtype)[None, None]
            outs.append(scaled_dot_product(q, k, v, head, bias).transpose(1, 2).flatten(0, 1))
        return torch.cat(outs).index_select(0, self.owner_N)


def padded(arrays: Sequence[IntArray]) -> Tensor:
    """Return arrays as the rows of a tensor, padded with zeros."""
    return pad_sequence([torch.from_numpy(array) for array in arrays], batch_first=True)


@frozen(eq=False)
class Queries:
    """Rows of a key-value cache, and the stream tokens that attend to each. ``stream_RQ`` are the
    tokens' places in the stream, flattened and padded. It is None if stream token i is the only one
    of row i; ``rows`` is then the number of rows."""

    rows: Tensor | int
    stream_RQ: Tensor | None
    positions_RQ: Tensor
    keys: int  # tokens in the rows


@define(eq=False)
class CacheLayout:
    """New tokens are written to rows of a key-value cache; then each attends to its own row. Token
    ``source_W[i]`` of the stream is written to row ``row_W[i]`` at ``position_W[i]``, so that one
    token may be in several rows; ``source_W`` None stands for all tokens in order. ``out_N`` are
    the indices of the tokens in the concatenated [R, Q] outputs, None if these are in order."""

    cache: KVCache
    source_W: Tensor | None
    row_W: Tensor
    position_W: Tensor
    queries: Sequence[Queries]
    out_N: Tensor | None
    _slots: Tensor | None = field(default=None, init=False)
    _biases: dict[tuple[int, int | None], Tensor] = field(factory=dict, init=False)

    def attend(self, head: AttentionHeads, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        if self.source_W is not None:
            k_NKD = k_NKD.index_select(0, self.source_W)
            v_NKD = v_NKD.index_select(0, self.source_W)
        if self._slots is None:
            self._slots = self.cache.slots(self.row_W, self.position_W, k_NKD.shape[1])
        self.cache.write(head.layer, self._slots, k_NKD, v_NKD)
        outs = []
        for i, some in enumerate(self.queries):
            k, v = self.cache.read(head.layer, some.rows, some.keys)
            q = q_NHD if some.stream_RQ is None else q_NHD.index_select(0, some.stream_RQ)
            q = q.reshape(*some.positions_RQ.shape, *q.shape[1:]).transpose(1, 2)
            if (i, head.window) not in self._biases:
                at_T = torch.arange(some.keys, device=q.device)
                bias = hide_unseen(some.positions_RQ[:, :, None], at_T, head.window, q.dtype)
                self._biases[i, head.window] = bias.unsqueeze(1)
            out = scaled_dot_product(q, k, v, head, self._biases[i, head.window])
            outs.append(out.transpose(1, 2).flatten(0, 1))
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        return out if self.out_N is None else out.index_select(0, self.out_N)


AttentionLayout = PackLayout | CacheLayout  # `attend` returns the output of a layer, [N, H, D]
