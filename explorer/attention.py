"""Attention of a few rows over a long cache, without copying keys and values for grouped heads.

transformers' sdpa repeats keys and values for every group of query heads as soon as there is a mask, which at 4,096
positions costs more than the attention itself. Here the query heads of a group become rows of one head instead.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "grouped"


def install() -> str:
    """Make the attention known to transformers; the name to load a model with. Calling it again changes nothing."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As transformers' sdpa: query (B, H, T, D), key and value (B, K, C, D), additive mask (B, 1, T, C) or None.

    Returns (B, T, H, D). The same kernel on the same numbers: only where a mask is given and K < H are the rows of
    a group's heads laid behind one another, (B, K, H / K * T, D), under a mask that is repeated for each of them.
    """
    batch, heads, rows, width = query.shape
    kv_heads = key.shape[1]
    foldable = attention_mask is not None and attention_mask.shape[1] == 1 and kwargs.get("position_bias") is None
    if attention_mask is None or not foldable or kv_heads == heads or dropout or key.device.type != "cpu":
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return output, None
    groups = heads // kv_heads
    folded = query.reshape(batch, kv_heads, groups * rows, width)
    mask = attention_mask.repeat(1, 1, groups, 1)
    attended = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return attended.reshape(batch, heads, rows, width).transpose(1, 2).contiguous(), None
