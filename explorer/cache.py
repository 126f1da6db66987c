"""The target's key/value cache of one lane: allocated once, written in place, compacted along the accepted path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from explorer.errors import ExplorerError


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

    Two buffers of shape (layers, kv_heads, capacity, head_dim) hold all layers, so that a commit is two
    gathers however many layers there are.
    """

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, capacity: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        try:
            buffers = torch.empty(2, layers, kv_heads, capacity, head_dim, dtype=dtype, device=device)
        except RuntimeError as error:
            needed = 2 * layers * kv_heads * capacity * head_dim * dtype.itemsize
            raise ExplorerError(
                f"Not enough memory for a cache of {capacity} positions ({needed / 1e6:.0f} MB); use a shorter prompt."
            ) from error
        self._keys, self._values = buffers[0], buffers[1]
        self._views = [_Layer(self._keys[i : i + 1], self._values[i : i + 1]) for i in range(layers)]
        super().__init__(layers=list(self._views))

    @property
    def length(self) -> int:
        """Committed positions."""
        return self._views[0].length

    @property
    def capacity(self) -> int:
        """Positions that fit, rows of a pass included."""
        return int(self._keys.shape[2])

    @property
    def bytes(self) -> int:
        """Memory held."""
        return 2 * self._keys.numel() * self._keys.element_size()

    def rows(self) -> tuple[Tensor, Tensor]:
        """Committed keys and values, each (layers, kv_heads, length, head_dim). Views, not copies."""
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last pass (0 is its first row), in this order; drop its other rows."""
        start, kept = self.length, len(rows)
        if list(rows) != list(range(kept)):
            source = torch.tensor([start + row for row in rows], device=self._keys.device)
            for buffer in (self._keys, self._values):
                # index_select copies first: source and target rows may overlap
                buffer[:, :, start : start + kept] = buffer.index_select(2, source)
        self._set_length(start + kept)

    def copy_from(self, other: KeyValueCache) -> None:
        """Take over another cache's committed rows."""
        for mine, theirs in zip((self._keys, self._values), other.rows(), strict=True):
            mine[:, :, : other.length].copy_(theirs)
        self._set_length(other.length)

    def _set_length(self, length: int) -> None:
        for layer in self._views:
            layer.length = length
