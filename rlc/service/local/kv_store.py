"""Keys and values of the sequences being decoded: one row each, the active ones in front.

Decoding reads the first rows as a view, without copying; so a finished row's place is taken
by the last active one. Dimensions: S rows, K key-value heads, C capacity in tokens, D head
size, R rows, W written tokens.
"""

from __future__ import annotations

import torch
from attrs import define, field
from torch import Tensor


@define(eq=False)
class KVStore:
    """Tensors [S, K, C, D] for each layer, made when a layer first writes."""

    device: torch.device
    rows: int = 0
    capacity: int = 0
    _layers: dict[int, tuple[Tensor, Tensor]] = field(factory=dict, init=False)

    def reserve(self, rows: int, capacity: int, used_rows: int, used: int) -> None:
        """Make room; the first ``used_rows`` × ``used`` tokens are kept."""
        if rows <= self.rows and capacity <= self.capacity:
            return
        self.rows, self.capacity = max(rows, self.rows), max(capacity, self.capacity)
        for layer, pair in self._layers.items():
            grown = tuple(self._empty(old) for old in pair)
            for new, old in zip(grown, pair, strict=True):
                new[:used_rows, :, :used] = old[:used_rows, :, :used]
            self._layers[layer] = (grown[0], grown[1])

    def write(
        self, layer: int, row_W: Tensor, position_W: Tensor, k_WKD: Tensor, v_WKD: Tensor
    ) -> None:
        """Put one token's keys and values at each (row, position)."""
        if layer not in self._layers:
            self._layers[layer] = (self._empty(k_WKD[:, :, None]), self._empty(v_WKD[:, :, None]))
        k, v = self._layers[layer]
        k[row_W, :, position_W] = k_WKD
        v[row_W, :, position_W] = v_WKD

    def read(self, layer: int, rows: Tensor | int, length: int) -> tuple[Tensor, Tensor]:
        """The first ``length`` tokens of the named rows, or of the first ``rows`` as a view."""
        k, v = self._layers[layer]
        if isinstance(rows, int):
            return k[:rows, :, :length], v[:rows, :, :length]
        return k[rows, :, :length], v[rows, :, :length]

    def move(self, source: list[int], target: list[int], length: int) -> None:
        """Copy rows over others, the first ``length`` tokens of each."""
        for pair in self._layers.values():
            for tensor in pair:
                tensor[target, :, :length] = tensor[source, :, :length]

    def cut(self, row: int, length: int) -> Cut:
        """A copy of the first ``length`` tokens of a row."""
        return {
            layer: (k[row, :, :length].clone(), v[row, :, :length].clone())
            for layer, (k, v) in self._layers.items()
        }

    def paste(self, row: int, cut: Cut, length: int) -> None:
        """Put the first ``length`` tokens of a copy into a row."""
        for layer, (k, v) in cut.items():
            own_k, own_v = self._layers[layer]
            own_k[row, :, :length] = k[:, :length]
            own_v[row, :, :length] = v[:, :length]

    def _empty(self, like: Tensor) -> Tensor:
        # Zeros, not garbage: masked keys have weight 0, and 0 × NaN would still be NaN.
        shape = (self.rows, like.shape[1], self.capacity, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=self.device)


Cut = dict[int, tuple[Tensor, Tensor]]
