"""The target's key/value cache of one lane: allocated once, written in place, compacted along the accepted path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from explorer.errors import ExplorerError
from explorer.transfers import to_device


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


@dataclass
class Window:
    """Where a padded pass writes, and how far it reads: tensors and shapes, so that the pass can be replayed."""

    rows: Tensor | None = None
    """(W,) cache rows of the pass; None between passes."""
    end: int = 0
    """Positions read, whatever the cache's length: the mask hides what lies behind it."""


class StaticLayer(_Layer):
    """Writes where the window says."""

    def __init__(self, keys: Tensor, values: Tensor, window: Window) -> None:
        super().__init__(keys, values)
        self._window = window

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write (1, kv_heads, W, head_dim) to the window's rows; return views up to its end."""
        rows, end = self._window.rows, self._window.end
        assert rows is not None, "a static cache is written by padded passes only"
        self.all_keys.index_copy_(2, rows, key_states)
        self.all_values.index_copy_(2, rows, value_states)
        return self.all_keys[:, :, :end], self.all_values[:, :, :end]


Buffers = list[tuple[list[int], Tensor, Tensor]]
"""Per group of layers of one shape: which they are, and their keys and values (layers, kv_heads, capacity, width)."""


class KeyValueCache(Cache):
    """Rows 0..length are committed; a pass writes its rows behind them, `commit` keeps some of these.

    Layers of one shape on one device share two buffers (layers, kv_heads, capacity, head_dim), so that a commit
    is two gathers a device, however many layers there are.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        capacity: int,
        *,
        groups: Buffers | None = None,
        make: Callable[[Tensor, Tensor], _Layer] = _Layer,
    ) -> None:
        self._groups = self.allocate(layers, capacity) if groups is None else groups
        views: dict[int, _Layer] = {}
        for members, keys, values in self._groups:
            views |= {index: make(keys[i : i + 1], values[i : i + 1]) for i, index in enumerate(members)}
        self._views = [views[index] for index in range(len(layers))]
        super().__init__(layers=list(self._views))

    @staticmethod
    def allocate(layers: Sequence[LayerShape], capacity: int) -> Buffers:
        """Buffers of zeros: a masked position's weight is 0, but 0 times whatever memory held need not be a number."""
        groups: dict[LayerShape, list[int]] = {}
        for index, shape in enumerate(layers):
            groups.setdefault(shape, []).append(index)
        try:
            return [(members, *_buffers(shape, len(members), capacity)) for shape, members in groups.items()]
        except RuntimeError as error:
            needed = capacity * sum(shape.bytes for shape in layers)
            raise ExplorerError(
                f"Not enough memory for a cache of {capacity} positions ({needed / 1e6:.0f} MB); use a shorter prompt."
            ) from error

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
                source = to_device([start + row for row in rows], buffers[0].device)
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
    keys = torch.zeros(layers, shape.kv_heads, capacity, shape.key_dim, dtype=shape.dtype, device=shape.device)
    values = torch.zeros(layers, shape.kv_heads, capacity, shape.value_dim, dtype=shape.dtype, device=shape.device)
    return keys, values
