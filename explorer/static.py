"""Passes of fixed shapes: a tree padded to a bucket of rows, a cache read up to a bucket of positions.

What a CUDA graph replays must never change its shapes or addresses. So a pass is padded: its rows to 1, 2, 4 ... 64
(then multiples of 64), the positions that it reads to a multiple of 512. All that differs from pass to pass (token ids,
positions, where the new rows go, who sees whom) lies in one small tensor that is filled in place. Padding rows stand
where the root stands, see the cache and themselves, and nobody sees them.

`static` runs such a pass as it is, on any device; `graphs` captures it once per cache, rows, positions and taps, and
replays it from then on. Buffers are kept when a lane ends, with the graphs that point at them, for the next lane.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from explorer.cache import Buffers, KeyValueCache, LayerShape, StaticLayer, Window
from explorer.transfers import pinned, to_device

Taps = dict[str, Tensor]
Decoder = Callable[[Tensor, Tensor, Tensor, KeyValueCache, frozenset[str]], Taps]
"""(token ids (1, W), positions (1, W), mask (1, 1, W, C), cache, taps) to hidden states (W, hidden) per tap."""
Key = tuple[int, int, frozenset[str]]
"""Rows, positions, taps."""

WIDE = 64
"""Most rows of a power of two; beyond it come its multiples."""
CONTEXT_STEP = 512
KEPT_STORES = 8
"""Buffers of ended lanes that are kept: as many as a comparison may have lanes."""
HEAD_ROWS = 3
"""Of the inputs: token ids, positions, cache rows. Then who sees whom."""
LOG = logging.getLogger(__name__)


def bucket_rows(rows: int) -> int:
    """The rows that a pass is padded to."""
    return 1 << (rows - 1).bit_length() if rows <= WIDE else -(-rows // WIDE) * WIDE


def bucket_positions(positions: int) -> int:
    """The positions that a pass reads."""
    return -(-positions // CONTEXT_STEP) * CONTEXT_STEP


@dataclass
class Store:
    """Buffers of one lane at a time, and the passes captured on them."""

    capacity: int
    groups: Buffers
    replays: dict[Key, Callable[[Tensor], Taps]] = field(default_factory=dict)


class StaticCache(KeyValueCache):
    """A cache on a store's buffers. `capacity` is what was asked for: padding rows have room behind it."""

    def __init__(self, layers: Sequence[LayerShape], capacity: int, store: Store) -> None:
        self.store, self.window = store, Window()
        self._asked = capacity
        super().__init__(layers, store.capacity, groups=store.groups, make=self._layer)

    @property
    def capacity(self) -> int:
        """Positions that fit, rows of a pass included, padding left out."""
        return self._asked

    def _layer(self, keys: Tensor, values: Tensor) -> StaticLayer:
        return StaticLayer(keys, values, self.window)


class StaticPasses:
    """Runs padded passes for one target, and owns the stores that its lanes' caches lie in."""

    def __init__(
        self, decoder: Decoder, layers: Sequence[LayerShape], device: torch.device, dtype: torch.dtype, *, capture: bool
    ) -> None:
        self._decoder, self._layers, self._device, self._dtype = decoder, layers, device, dtype
        self.captures = capture
        """Until a capture fails."""
        self._free: list[Store] = []
        self._pool: Any = None

    def new_cache(self, capacity: int) -> StaticCache:
        """An empty cache, on a store that an earlier lane has left where one is large enough."""
        wanted = bucket_positions(capacity + WIDE)
        store = min((each for each in self._free if each.capacity >= wanted), key=lambda s: s.capacity, default=None)
        if store is None or store.capacity > 2 * wanted:
            with torch.inference_mode(False):  # tensors of one lane's inference mode could not be written outside it
                store = Store(wanted, KeyValueCache.allocate(self._layers, wanted))
        else:
            self._free.remove(store)
        cache = StaticCache(self._layers, capacity, store)
        weakref.finalize(cache, _leave, self._free, store)
        return cache

    def prepare(self, rows: int, cache: StaticCache, taps: frozenset[str]) -> None:
        """Capture the pass over so many rows, unless that was done: no lane's clock should pay for it."""
        key = self.key(rows, cache, taps)
        if self.captures and key not in cache.store.replays:
            self._capture(key, cache)

    def run(
        self, token_ids: list[int], offsets: list[int], visible: Tensor, cache: StaticCache, taps: frozenset[str]
    ) -> Taps:
        """Hidden states (T, hidden) per tap. offsets: of each row from the cache's end; visible: (T, T) bool."""
        rows = len(token_ids)
        key = self.key(rows, cache, taps)
        inputs = padded_inputs(token_ids, offsets, visible, cache.length, key[0])
        self.prepare(rows, cache, taps)
        replay = cache.store.replays.get(key)
        found = replay(inputs) if replay is not None else self.padded(to_device(inputs, self._device), key, cache)
        # a copy: the next replay writes over the rows
        return {tap: state[:rows].clone() for tap, state in found.items()}

    def key(self, rows: int, cache: StaticCache, taps: frozenset[str]) -> Key:
        """The bucket of a pass over so many rows behind the cache's."""
        width = bucket_rows(rows)
        return width, min(bucket_positions(cache.length + width), cache.store.capacity), taps

    def padded(self, inputs: Tensor, key: Key, cache: StaticCache) -> Taps:
        """The pass itself, on inputs (3 + W, W) as `padded_inputs` makes them: reads nothing from the host."""
        width, positions, taps = key
        new_rows = inputs[2]  # (W,)
        lowest = torch.finfo(self._dtype).min
        mask = torch.zeros(width, positions, dtype=self._dtype, device=inputs.device)
        mask.masked_fill_(torch.arange(positions, device=inputs.device) >= new_rows[0], lowest)
        among = torch.zeros(width, width, dtype=self._dtype, device=inputs.device)
        mask.index_copy_(1, new_rows, among.masked_fill_(inputs[HEAD_ROWS:] == 0, lowest))
        cache.window.rows, cache.window.end = new_rows, positions
        try:
            return self._decoder(inputs[0:1], inputs[1:2], mask[None, None], cache, taps)
        finally:
            cache.window.rows = None

    @torch.inference_mode()
    def _capture(self, key: Key, cache: StaticCache) -> None:
        """Record the pass as a CUDA graph. Where that fails, passes run without from now on, and the log says so."""
        # what the trial passes write lies behind the committed rows
        start = padded_inputs([0], [0], torch.ones(1, 1, dtype=torch.bool), cache.length, key[0])
        try:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            cache.store.replays[key] = captured(
                lambda inputs: self.padded(inputs, key, cache), start.to(self._device), self._pool
            )
        except Exception as error:  # whatever a model's own code may not do while it is captured
            self.captures = False
            self._free.clear()  # caches are plain ones from now on
            LOG.warning(
                "Passes run without CUDA graphs: %s", (str(error) or type(error).__name__).splitlines()[0][:200]
            )


def padded_inputs(token_ids: Sequence[int], offsets: Sequence[int], visible: Tensor, length: int, width: int) -> Tensor:
    """(3 + W, W) int64: token ids, positions, cache rows, and who sees whom. Padding repeats the root, for itself."""
    rows = len(token_ids)
    inputs = torch.zeros(HEAD_ROWS + width, width, dtype=torch.int64)
    inputs[0], inputs[1] = token_ids[0], length
    inputs[0, :rows] = torch.tensor(token_ids)
    inputs[1, :rows] += torch.tensor(offsets)
    inputs[2] = torch.arange(length, length + width)
    inputs[HEAD_ROWS:].fill_diagonal_(1)
    inputs[HEAD_ROWS : HEAD_ROWS + rows, :rows] = visible
    return inputs


def captured(run: Callable[[Tensor], Mapping[str, Tensor]], inputs: Tensor, pool: Any) -> Callable[[Tensor], Taps]:
    """A CUDA graph of the pass, as a function of its inputs on the host. Needs a CUDA device.

    Graphs share a pool of memory: none of them runs beside another, and what they give is held here, so that no later
    capture takes its place.
    """
    device = inputs.device
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # warm up outside of the capture, as the documentation of CUDA graphs asks for
        for _ in range(2):
            run(inputs)
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        outputs = dict(run(inputs))

    def replay(given: Tensor) -> Taps:
        inputs.copy_(pinned(given, device), non_blocking=True)
        graph.replay()
        return outputs

    return replay


def _leave(free: list[Store], store: Store) -> None:
    """A lane's cache is gone: its store waits for the next one; the oldest is let go where there are too many."""
    free.append(store)
    del free[:-KEPT_STORES]
