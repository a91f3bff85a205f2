"""Keys and values of the sequences being decoded: one row each, the active ones in front.

Decoding reads the first rows as a view, without copying; so a finished row's place is taken
by the last active one. Dimensions: X keys and values of all layers (layer 0's keys, its
values, layer 1's keys, …), S rows, K key-value heads, C capacity in tokens, D head size,
W tokens to write.
"""

from __future__ import annotations

import torch
from attrs import define
from torch import Tensor

from rlc.service.errors import ServiceError

_ROOM = 64  # tokens by which the capacity grows, at least


@define(eq=False)
class KVCache:
    """One tensor [X, S, K, C, D], made at the first write, when K and D are known."""

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
        """Return where a token's heads lie among the S·K·C of a layer, flattened: [W, K] → W·K."""
        head_K = torch.arange(heads, device=self.device)
        rows_WK = row_W[:, None] * heads + head_K
        return (rows_WK * self.capacity + position_W[:, None]).flatten()

    def write(self, layer: int, slots: Tensor, k_WKD: Tensor, v_WKD: Tensor) -> None:
        """Put keys and values at the `slots` of their tokens."""
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
        if isinstance(rows, int):
            return k[:rows, :, :length], v[:rows, :, :length]
        return k[rows, :, :length], v[rows, :, :length]

    def move(self, source: list[int], target: list[int], length: int) -> None:
        """Copy rows over others, the first ``length`` tokens of each."""
        self.tensor[:, target, :, :length] = self.tensor[:, source, :, :length]

    def cut(self, row: int, length: int) -> Tensor:
        """Return a copy of the first ``length`` tokens of a row: [X, K, T, D]."""
        return self.tensor[:, row, :, :length].clone()

    def paste(self, row: int, cut: Tensor, length: int) -> None:
        """Put the first ``length`` tokens of a copy into a row."""
        self.tensor[:, row, :, :length] = cut[:, :, :length]

    def _empty(self, heads: int, size: int) -> Tensor:
        # Zeros, not garbage: hidden keys have weight 0, and 0 × NaN would still be NaN.
        shape = (2 * self.layers, self.rows, heads, self.capacity, size)
        return torch.zeros(shape, device=self.device, dtype=self.dtype)
