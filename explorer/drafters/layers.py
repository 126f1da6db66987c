"""What the EAGLE layers share: the slot cache, one Llama layer's parts, rotary positions, attention over slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from explorer.products import together

# Queries are attended in blocks of this many rows, so that a long prompt needs no square score matrix.
_QUERY_BLOCK = 256


@dataclass(frozen=True)
class SlotShape:
    """Sizes that both EAGLE layers have."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    """The draft does not inherit the target's base."""
    rope_scaling: Mapping[str, Any] | None = None
    """transformers' rope parameters, with `rope_type` linear, llama3 or yarn."""


class DraftCache:
    """Keys and values of the draft layer, preallocated; the caller truncates what was only guessed."""

    def __init__(self, num_kv_heads: int, capacity: int, head_dim: int, like: Tensor) -> None:
        self.keys = like.new_zeros(num_kv_heads, capacity, head_dim)
        self.values = like.new_zeros(num_kv_heads, capacity, head_dim)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[1]

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Write (kv_heads, T, head_dim) behind the used slots."""
        end = self.length + keys.shape[1]
        if end > self.capacity:
            raise ValueError(f"The draft cache holds {self.capacity} slots, {end} are needed.")
        self.keys[:, self.length : end] = keys
        self.values[:, self.length : end] = values
        self.length = end

    def truncate(self, length: int) -> None:
        """Forget all slots from `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"Cannot truncate a draft cache of {self.length} slots to {length}.")
        self.length = length


class RootMeanSquareNorm(nn.Module):
    """Llama's RMSNorm: computed in float32, scaled in the weight's type."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # scaled in a step of its own: rms_norm would round bfloat16 once less
        return self.weight * F.rms_norm(x, self.weight.shape, None, self.eps)


class Attention(nn.Module):
    """The four projections; the scores are computed by the caller (they differ in training)."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        qkv_bias: bool = False,
        qk_norm_eps: float | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(input_size, heads * head_dim, bias=qkv_bias)
        self.k_proj = nn.Linear(input_size, kv_heads * head_dim, bias=qkv_bias)
        self.v_proj = nn.Linear(input_size, kv_heads * head_dim, bias=qkv_bias)
        self.o_proj = nn.Linear(heads * head_dim, output_size, bias=False)
        if qk_norm_eps is not None:
            self.q_norm = RootMeanSquareNorm(head_dim, qk_norm_eps)
            self.k_norm = RootMeanSquareNorm(head_dim, qk_norm_eps)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(..., T, input) -> rotated queries (..., heads, T, d), rotated keys and values (..., kv_heads, T, d)."""
        queries, keys, values = (
            rows.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)
            for rows in together((self.q_proj, self.k_proj, self.v_proj), x)
        )
        if hasattr(self, "q_norm"):
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        return rotate(queries, cos, sin), rotate(keys, cos, sin), values


class GatedMlp(nn.Module):
    """SwiGLU."""

    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = together((self.gate_proj, self.up_proj), x)
        return self.down_proj(F.silu(gate) * up)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding with Llama's half-split pairing; x (..., T, d), cos and sin (T, d)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def rope_table(
    positions: int, head_dim: int, theta: float, scaling: Mapping[str, Any] | None = None
) -> tuple[Tensor, Tensor]:
    """cos and sin of all positions, each (positions, head_dim) float32.

    `scaling` holds transformers' rope parameters (rope_type linear, llama3 or yarn with their factors).
    """
    frequencies, factor = _frequencies(head_dim, theta, scaling)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies).repeat(1, 2)
    return angles.cos() * factor, angles.sin() * factor


def _frequencies(head_dim: int, theta: float, scaling: Mapping[str, Any] | None) -> tuple[Tensor, float]:
    if scaling is None:
        return theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim), 1.0
    config = LlamaConfig(
        head_dim=head_dim,
        max_position_embeddings=int(scaling.get("original_max_position_embeddings", 2048)),
        rope_parameters={"rope_theta": theta, **scaling},
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"))
    return frequencies.float(), float(factor)


def attend(queries: Tensor, cache: DraftCache, mask: Tensor | None) -> Tensor:
    """(heads, T, d) -> (heads, T, d) over all slots of the cache, grouped heads without copies.

    The T newest slots of the cache are the queries' own; mask (T, cache.length) additive, None = causal.
    Not by two batched products: in bfloat16 oneDNN compiles one for each length of the cache, which takes ten times
    as long as the product.
    """
    heads, rows, size = queries.shape
    kv_heads = cache.keys.shape[0]
    groups = heads // kv_heads
    before = cache.length - rows
    blocks = []
    for start in range(0, rows, _QUERY_BLOCK):
        end = min(start + _QUERY_BLOCK, rows)
        # A causal block sees no slot behind its own last row.
        seen = cache.length if mask is not None else before + end
        grouped = queries[:, start:end].reshape(1, kv_heads, groups * (end - start), size)
        mixed = F.scaled_dot_product_attention(
            grouped,
            cache.keys[None, :, :seen],
            cache.values[None, :, :seen],
            attn_mask=_grouped_mask(mask, start, end, seen, groups, like=queries),
        )
        # reshape: some kernels give their rows in another order of strides
        blocks.append(mixed.reshape(heads, end - start, size))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)


def _grouped_mask(mask: Tensor | None, start: int, end: int, seen: int, groups: int, *, like: Tensor) -> Tensor | None:
    """Additive mask of the block's rows (1, 1, groups * T, seen), once for each head of a group; None: all is seen."""
    if mask is not None:
        mask = mask[start:end, :seen]
    elif end - start > 1:
        mask = _causal(end - start, seen, like)
    return None if mask is None else mask.to(like.dtype).repeat(groups, 1)[None, None]


def _causal(rows: int, seen: int, like: Tensor) -> Tensor:
    """Additive mask (rows, seen) for the last `rows` of `seen` slots."""
    return torch.full((rows, seen), float("-inf"), dtype=like.dtype, device=like.device).triu(seen - rows + 1)


class SlotNetwork(nn.Module):
    """Embedding, rotary table and slot cache, which both EAGLE layers have."""

    token_map: Tensor | None
    embed_weight: Tensor | None
    cos: Tensor | None
    sin: Tensor | None
    fc: nn.Linear

    def __init__(self, shape: SlotShape, token_map: Tensor | None) -> None:
        super().__init__()
        self._slots = shape
        self.hidden_size = shape.hidden_size
        for name in ("embed_weight", "cos", "sin"):
            self.register_buffer(name, None, persistent=False)
        self.register_buffer("token_map", token_map, persistent=False)

    def embed(self, token_ids: Tensor) -> Tensor:
        """(..., T) -> (..., T, h) embeddings, the target's or the layer's own."""
        assert self.embed_weight is not None, "bind() comes before forward()"
        return F.embedding(token_ids, self.embed_weight)

    def rope(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin (at least `positions`, d) in the layer's type; computed again only to grow."""
        cos, sin = self.cos, self.sin
        if cos is None or sin is None or cos.shape[0] < positions or cos.dtype != self.fc.weight.dtype:
            shape = self._slots
            # Training reuses the table, and an inference tensor could not take part in it.
            with torch.inference_mode(False):
                cos, sin = rope_table(max(positions, 1024), shape.head_dim, shape.rope_theta, shape.rope_scaling)
                cos, sin = cos.to(self.fc.weight), sin.to(self.fc.weight)
            self.cos, self.sin = cos, sin
        return cos, sin

    def new_cache(self, capacity: int) -> DraftCache:
        """An empty cache; the rope table is grown here, so that `forward` never has to."""
        self.rope(capacity)
        return DraftCache(self._slots.num_kv_heads, capacity, self._slots.head_dim, self.fc.weight)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (T, d) of these positions."""
        assert self.cos is not None, "new_cache() comes before forward()"
        assert self.sin is not None
        return self.cos[positions], self.sin[positions]
