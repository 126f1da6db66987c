"""Grouped attention gives what transformers' sdpa gives, with and without a mask, at any grouping."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from explorer.attention import NAME, grouped_attention, install


class Caller(nn.Module):
    """What an attention function reads of the module that calls it."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.num_key_value_groups = groups
        self.is_causal = True


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(0, 20), st.booleans())
def test_it_is_sdpa(kv_heads: int, groups: int, rows: int, cached: int, masked: bool) -> None:
    generator = torch.Generator().manual_seed(kv_heads + 10 * groups + 100 * rows + 1000 * cached)
    query = torch.randn(1, kv_heads * groups, rows, 8, generator=generator)
    key, value = torch.randn(2, 1, kv_heads, cached + rows, 8, generator=generator)
    visible = torch.rand(rows, cached + rows, generator=generator) < 0.7
    visible[:, -rows:] |= torch.eye(rows, dtype=torch.bool)
    mask = torch.zeros(1, 1, rows, cached + rows).masked_fill(~visible, torch.finfo(torch.float32).min)
    given_mask = mask if masked else None
    module = Caller(groups)
    ours, _ = grouped_attention(module, query, key, value, given_mask, scaling=0.3)
    theirs, _ = sdpa_attention_forward(module, query, key, value, given_mask, scaling=0.3)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("times", [1, 2])
def test_installing_makes_it_known(times: int) -> None:
    assert {install() for _ in range(times)} == {NAME}
    assert AttentionInterface()[NAME] is grouped_attention
