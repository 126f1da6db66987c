"""The target's key/value cache of one lane: allocated once, written in place, compacted along the accepted path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from explorer.errors import ExplorerError


@dataclass(frozen=True)
class LayerShape:
    """What one layer keeps of a position, and where."""

    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes(self) -> int:
        """Bytes of a position."""
        return self.kv_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize


class _Layer(CacheLayerMixin):
    """One layer's view of the shared buffers; `update` is what a transformers attention calls."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.all_keys, self.all_values = keys, values  # (1, kv_heads, capacity, head_dim)
        self.length = 0
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the buffers exist."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write (1, kv_heads, T, head_dim) behind the cached rows; return views of all rows so far."""
        end = self.length + key_states.shape[-2]
        self.all_keys[:, :, self.length : end].copy_(key_states)
        self.all_values[:, :, self.length : end].copy_(value_states)
        return self.all_keys[:, :, :end], self.all_values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(rows to attend to, offset)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Committed rows."""
        return self.length

    def get_max_length(self) -> int:
        """Rows that fit."""
        return int(self.all_keys.shape[-2])


class KeyValueCache(Cache):
    """Rows 0..length are committed; a pass writes its rows behind them, `commit` keeps some of these.

    Layers of one shape on one device share two buffers (layers, kv_heads, capacity, head_dim), so that a commit
    is two gathers a device, however many layers there are.
    """

    def __init__(self, layers: Sequence[LayerShape], capacity: int) -> None:
        groups: dict[LayerShape, list[int]] = {}
        for index, shape in enumerate(layers):
            groups.setdefault(shape, []).append(index)
        try:
            self._groups = [(members, *_buffers(shape, len(members), capacity)) for shape, members in groups.items()]
        except RuntimeError as error:
            needed = capacity * sum(shape.bytes for shape in layers)
            raise ExplorerError(
                f"Not enough memory for a cache of {capacity} positions ({needed / 1e6:.0f} MB); use a shorter prompt."
            ) from error
        views: dict[int, _Layer] = {}
        for members, keys, values in self._groups:
            views |= {index: _Layer(keys[i : i + 1], values[i : i + 1]) for i, index in enumerate(members)}
        self._views = [views[index] for index in range(len(layers))]
        super().__init__(layers=list(self._views))

    @property
    def length(self) -> int:
        """Committed positions."""
        return self._views[0].length

    @property
    def capacity(self) -> int:
        """Positions that fit, rows of a pass included."""
        return self._views[0].get_max_length()

    @property
    def bytes(self) -> int:
        """Memory held."""
        return sum(buffer.nbytes for _, *buffers in self._groups for buffer in buffers)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Committed keys and values, each (layers, kv_heads, length, head_dim), for caches with one head size.

        Views where all layers share a device, else copies on the first layer's device.
        """
        keys, values = ([buffers[kind] for _, *buffers in self._groups] for kind in (0, 1))
        if len(keys) == 1:
            return keys[0][:, :, : self.length], values[0][:, :, : self.length]
        place = self._views[0].all_keys.device
        merged = []
        for kind in (0, 1):
            layers = [(view.all_keys, view.all_values)[kind] for view in self._views]
            merged.append(torch.cat([layer[:, :, : self.length].to(place) for layer in layers]))
        return merged[0], merged[1]

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last pass (0 is its first row), in this order; drop its other rows."""
        start, kept = self.length, len(rows)
        if list(rows) != list(range(kept)):
            for _, *buffers in self._groups:
                source = torch.tensor([start + row for row in rows], device=buffers[0].device)
                for buffer in buffers:
                    # index_select copies first: source and target rows may overlap
                    buffer[:, :, start : start + kept] = buffer.index_select(2, source)
        self._set_length(start + kept)

    def truncate(self, length: int) -> None:
        """Forget the committed rows behind the first `length`."""
        self._set_length(min(length, self.length))

    def copy_from(self, other: KeyValueCache) -> None:
        """Take over another cache's committed rows; both have the same layers."""
        for (_, *mine), (_, *theirs) in zip(self._groups, other._groups, strict=True):
            for buffer, source in zip(mine, theirs, strict=True):
                buffer[:, :, : other.length].copy_(source[:, :, : other.length])
        self._set_length(other.length)

    def _set_length(self, length: int) -> None:
        for layer in self._views:
            layer.length = length


def _buffers(shape: LayerShape, layers: int, capacity: int) -> tuple[Tensor, Tensor]:
    keys = torch.empty(layers, shape.kv_heads, capacity, shape.key_dim, dtype=shape.dtype, device=shape.device)
    values = torch.empty(layers, shape.kv_heads, capacity, shape.value_dim, dtype=shape.dtype, device=shape.device)
    return keys, values
