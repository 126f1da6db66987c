"""The key/value cache: commits keep the named rows in order, whatever overlaps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.cache import KeyValueCache, LayerShape
from explorer.errors import ExplorerError

LAYERS, HEADS, SIZE = 3, 2, 4
CPU = torch.device("cpu")


def make(capacity: int = 64, dtype: torch.dtype = torch.float32) -> KeyValueCache:
    return KeyValueCache([LayerShape(HEADS, SIZE, SIZE, dtype, CPU)] * LAYERS, capacity)


def make_mixed(capacity: int = 64) -> KeyValueCache:
    """Layers in two groups, as where a model lies on two devices; the layers between belong to the other one."""
    wide = LayerShape(HEADS, SIZE, SIZE, torch.float32, CPU)
    other = LayerShape(HEADS, SIZE, SIZE, torch.float64, CPU)
    return KeyValueCache([wide, other, wide], capacity)


def run_pass(cache: KeyValueCache, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a transformers model does: each layer writes its rows. Returns all layers' new keys and values."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(LAYERS, HEADS, count, SIZE, generator=generator)
    values = torch.randn(LAYERS, HEADS, count, SIZE, generator=generator)
    for index, layer in enumerate(cache.layers):
        before = cache.length
        seen = layer.update(keys[index : index + 1], values[index : index + 1])
        assert seen[0].shape == (1, HEADS, before + count, SIZE)
        assert torch.equal(seen[0][0, :, before:].float(), keys[index])
        assert torch.equal(seen[1][0, :, before:].float(), values[index])
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


@given(steps, st.integers(0, 1000), st.sampled_from([make, make_mixed]))
def test_committed_rows_are_those_that_were_kept(
    passes: list[tuple[int, list[int]]], seed: int, maker: Callable[[], KeyValueCache]
) -> None:
    """Against a list of tensors that grows by what is kept."""
    cache = maker()
    keys = torch.empty(LAYERS, HEADS, 0, SIZE)
    values = torch.empty(LAYERS, HEADS, 0, SIZE)
    for place, (count, kept) in enumerate(passes):
        new_keys, new_values = run_pass(cache, count, seed + place)
        cache.commit(kept)
        keys = torch.cat([keys, new_keys[:, :, kept]], dim=2)
        values = torch.cat([values, new_values[:, :, kept]], dim=2)
        assert cache.length == keys.shape[2] == cache.get_seq_length()
        assert torch.equal(cache.rows()[0].float(), keys)
        assert torch.equal(cache.rows()[1].float(), values)
    copy = maker()
    copy.copy_from(cache)
    assert torch.equal(copy.rows()[0], cache.rows()[0])
    assert copy.length == cache.length


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


def test_keys_and_values_may_have_different_sizes() -> None:
    """Latent attention (DeepSeek) has wider keys than values; one key/value head for all queries is a head too."""
    cache = KeyValueCache([LayerShape(1, 6, 4, torch.float32, CPU)] * 2, 8)
    for layer in cache.layers:
        layer.update(torch.ones(1, 1, 3, 6), torch.ones(1, 1, 3, 4))
    cache.commit([0, 2])
    assert [tuple(rows.shape) for rows in cache.rows()] == [(2, 1, 2, 6), (2, 1, 2, 4)]
    assert cache.bytes == 2 * 8 * (6 + 4) * 4


@pytest.mark.parametrize("capacity", [10**13, 10**18])
def test_too_little_memory_is_one_sentence(capacity: int) -> None:
    with pytest.raises(ExplorerError, match=f"Not enough memory for a cache of {capacity} positions"):
        make(capacity)
