"""The key/value cache: commits keep the named rows in order, whatever overlaps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.cache import KeyValueCache
from explorer.errors import ExplorerError

LAYERS, HEADS, SIZE = 3, 2, 4


def make(capacity: int = 64, dtype: torch.dtype = torch.float32) -> KeyValueCache:
    return KeyValueCache(LAYERS, HEADS, SIZE, capacity, dtype=dtype, device=torch.device("cpu"))


def run_pass(cache: KeyValueCache, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a transformers model does: each layer writes its rows. Returns all layers' new keys and values."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(LAYERS, HEADS, count, SIZE, generator=generator)
    values = torch.randn(LAYERS, HEADS, count, SIZE, generator=generator)
    for index, layer in enumerate(cache.layers):
        before = cache.length
        seen = layer.update(keys[index : index + 1], values[index : index + 1])
        assert seen[0].shape == (1, HEADS, before + count, SIZE)
        assert torch.equal(seen[0][0, :, before:], keys[index])
        assert torch.equal(seen[1][0, :, before:], values[index])
    return keys, values


steps = st.lists(
    st.integers(1, 9).flatmap(
        lambda count: st.tuples(
            st.just(count), st.lists(st.integers(0, count - 1), unique=True, max_size=count).map(sorted)
        )
    ),
    min_size=1,
    max_size=7,
)


@given(steps, st.integers(0, 1000))
def test_committed_rows_are_those_that_were_kept(passes: list[tuple[int, list[int]]], seed: int) -> None:
    """Against a list of tensors that grows by what is kept."""
    cache = make()
    keys = torch.empty(LAYERS, HEADS, 0, SIZE)
    values = torch.empty(LAYERS, HEADS, 0, SIZE)
    for place, (count, kept) in enumerate(passes):
        new_keys, new_values = run_pass(cache, count, seed + place)
        cache.commit(kept)
        keys = torch.cat([keys, new_keys[:, :, kept]], dim=2)
        values = torch.cat([values, new_values[:, :, kept]], dim=2)
        assert cache.length == keys.shape[2] == cache.get_seq_length()
        assert torch.equal(cache.rows()[0], keys)
        assert torch.equal(cache.rows()[1], values)


def test_rows_that_were_not_committed_are_written_over() -> None:
    cache = make()
    run_pass(cache, 5, 1)
    cache.commit([])
    assert cache.length == 0
    second, _ = run_pass(cache, 2, 2)
    cache.commit(range(2))
    assert torch.equal(cache.rows()[0], second)


def test_a_copy_is_independent() -> None:
    source, copy = make(8), make(20)
    run_pass(source, 6, 1)
    source.commit([0, 2, 5])
    copy.copy_from(source)
    before = copy.rows()[0].clone()
    run_pass(source, 4, 2)
    source.commit(range(4))
    assert copy.length == 3
    assert torch.equal(copy.rows()[0], before)
    assert torch.equal(source.rows()[0][:, :, :3], before)


def test_every_layer_tells_the_same_sizes() -> None:
    cache = make(10)
    run_pass(cache, 3, 0)
    cache.commit([0, 2])
    assert [layer.get_seq_length() for layer in cache.layers] == [2] * LAYERS
    assert [layer.get_mask_sizes(4) for layer in cache.layers] == [(6, 0)] * LAYERS
    assert cache.capacity == cache.layers[0].get_max_length() == 10
    assert cache.bytes == 2 * LAYERS * HEADS * 10 * SIZE * 4
    assert make(10, torch.bfloat16).bytes == cache.bytes // 2


@pytest.mark.parametrize("capacity", [10**13, 10**18])
def test_too_little_memory_is_one_sentence(capacity: int) -> None:
    with pytest.raises(ExplorerError, match=f"Not enough memory for a cache of {capacity} positions"):
        make(capacity)
