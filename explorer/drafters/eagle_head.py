"""EAGLE-1 draft layer (Li et al. 2024, arXiv 2401.15077), also used by EAGLE-2 (arXiv 2406.16858).

Slot t reads the embedding of token t+1 and the target's feature t (hidden state after the final norm) and
predicts feature t+1; the target's output matrix turns that into a distribution of token t+2. Layout of the
public checkpoints: `fc` on concat[embedding, feature], then one Llama layer *without* input norm, no final
norm. Slot t has position t. The rope base is the config's, or 10,000.

Deviation from the public layout: an optional `token_map` tensor limits drafting to a draft vocabulary, the
rows of the output matrix that it names. Tokens outside of it are never drafted; the output stays right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.checkpoint import (
    DrafterInfo,
    config_integer,
    describe,
    need,
    read_checkpoint,
    read_token_map,
)
from explorer.errors import ExplorerError
from explorer.products import output_product

# Queries are attended in blocks of this many rows, so that a long prompt needs no square score matrix.
_QUERY_BLOCK = 256


@dataclass(frozen=True)
class EagleShape:
    """Sizes of the draft layer."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    fc_bias: bool = True
    qkv_bias: bool = False


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
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Attention(nn.Module):
    """The four projections; the scores are computed by the caller (they differ in training)."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        size, width, kv_width = shape.hidden_size, shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(size, width, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(size, kv_width, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(size, kv_width, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(width, size, bias=False)


class GatedMlp(nn.Module):
    """SwiGLU."""

    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    """One Llama layer without input norm, split around the attention scores."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.self_attn = Attention(shape)
        self.mlp = GatedMlp(shape.hidden_size, shape.intermediate_size)
        self.post_attention_layernorm = RootMeanSquareNorm(shape.hidden_size, shape.rms_norm_eps)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(..., T, h) -> rotated queries (..., heads, T, d), rotated keys and values (..., kv_heads, T, d)."""
        queries, keys, values = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)
            for projection in (self.self_attn.q_proj, self.self_attn.k_proj, self.self_attn.v_proj)
        )
        return rotate(queries, cos, sin), rotate(keys, cos, sin), values

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Residuals and MLP; `attended` is (..., heads, T, d)."""
        x = x + self.self_attn.o_proj(attended.transpose(-3, -2).flatten(-2))
        return x + self.mlp(self.post_attention_layernorm(x))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding with Llama's half-split pairing; x (..., T, d), cos and sin (T, d)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def rope_table(positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin of all positions, each (positions, head_dim) float32."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


class EagleHead(nn.Module):
    """The draft layer with what it borrows from the target (bound, never stored)."""

    token_map: Tensor | None
    embed_weight: Tensor | None
    output_weight: Tensor | None
    cos: Tensor | None
    sin: Tensor | None

    def __init__(self, shape: EagleShape, *, token_map: Tensor | None = None, info: DrafterInfo | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.hidden_size = shape.hidden_size
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=shape.fc_bias)
        self.layers = nn.ModuleList([DraftLayer(shape)])
        for name in ("embed_weight", "output_weight", "cos", "sin"):
            self.register_buffer(name, None, persistent=False)
        self.register_buffer("token_map", token_map, persistent=False)
        own = sum(parameter.numel() for parameter in self.parameters())
        self.info = info or DrafterInfo("untrained", own, own * self.fc.weight.element_size(), None)

    @property
    def layer(self) -> DraftLayer:
        layer = self.layers[0]
        assert isinstance(layer, DraftLayer)
        return layer

    def bind(self, embed_weight: Tensor, output_weight: Tensor) -> None:
        """Take embedding and output matrix, both (V, h), in the layer's own type.

        The embedding is not copied where type and device agree; of the output matrix only the rows of
        the draft vocabulary are kept.
        """
        for matrix in (embed_weight, output_weight):
            if matrix.shape[-1] != self.hidden_size:
                raise ExplorerError(
                    f"The EAGLE head is made for hidden size {self.hidden_size}, the target has {matrix.shape[-1]}."
                )
        self.embed_weight = embed_weight.detach().to(self.fc.weight)
        rows = output_weight.detach() if self.token_map is None else output_weight.detach()[self.token_map]
        self.output_weight = rows.to(self.fc.weight).contiguous()  # (D, h)

    def rope(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin (at least `positions`, d) in the layer's type; computed again only to grow."""
        cos, sin = self.cos, self.sin
        if cos is None or sin is None or cos.shape[0] < positions or cos.dtype != self.fc.weight.dtype:
            # Training reuses the table, and an inference tensor could not take part in it.
            with torch.inference_mode(False):
                cos, sin = rope_table(max(positions, 1024), self.shape.head_dim, self.shape.rope_theta)
                cos, sin = cos.to(self.fc.weight), sin.to(self.fc.weight)
            self.cos, self.sin = cos, sin
        return cos, sin

    def new_cache(self, capacity: int) -> DraftCache:
        """An empty cache; the rope table is grown here, so that `forward` never has to."""
        self.rope(capacity)
        return DraftCache(self.shape.num_kv_heads, capacity, self.shape.head_dim, self.fc.weight)

    def fuse(self, token_ids: Tensor, features: Tensor) -> Tensor:
        """concat[embedding of token t+1, feature t] through `fc`; (..., T) and (..., T, h) -> (..., T, h)."""
        assert self.embed_weight is not None, "bind() comes before forward()"
        return self.fc(torch.cat((F.embedding(token_ids, self.embed_weight), features), dim=-1))

    def forward(
        self, token_ids: Tensor, features: Tensor, positions: Tensor, cache: DraftCache, mask: Tensor | None = None
    ) -> Tensor:
        """Run T slots behind those in the cache and append them.

        token_ids (T,); features (T, h); positions (T,) < cache.capacity; mask (T, cache.length + T)
        additive, None = causal. Returns the predicted next features (T, h).
        """
        assert self.cos is not None, "new_cache() comes before forward()"
        assert self.sin is not None
        x = self.fuse(token_ids, features)
        queries, keys, values = self.layer.project(x, self.cos[positions], self.sin[positions])
        cache.append(keys, values)
        attended = self._attend(queries, cache, mask)
        return self.layer.finish(x, attended)

    def _attend(self, queries: Tensor, cache: DraftCache, mask: Tensor | None) -> Tensor:
        """(heads, T, d) -> (heads, T, d) over all slots of the cache, grouped heads without copies."""
        heads, rows, size = queries.shape
        groups = heads // self.shape.num_kv_heads
        before = cache.length - rows
        blocks = []
        for start in range(0, rows, _QUERY_BLOCK):
            end = min(start + _QUERY_BLOCK, rows)
            # A causal block sees no slot behind its own last row.
            seen = cache.length if mask is not None else before + end
            grouped = queries[:, start:end].reshape(-1, groups * (end - start), size)
            scores = torch.bmm(grouped, cache.keys[:, :seen].transpose(1, 2)) * size**-0.5
            scores = scores.view(heads, end - start, seen)  # kv-major, as the heads are ordered
            if mask is not None:
                scores = scores + mask[start:end, :seen]
            elif end - start > 1:
                scores = scores + _causal(end - start, seen, scores)
            weights = scores.softmax(-1, dtype=torch.float32).to(queries.dtype)
            mixed = torch.bmm(weights.view(-1, groups * (end - start), seen), cache.values[:, :seen])
            blocks.append(mixed.view(heads, end - start, size))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

    def log_probs(self, features: Tensor) -> Tensor:
        """(T, h) -> (T, D) log-softmax over the draft vocabulary, float32 (no temperature: EAGLE-2, 4.1)."""
        assert self.output_weight is not None, "bind() comes before log_probs()"
        return F.log_softmax(output_product(features, self.output_weight).float(), dim=-1)

    def export(self) -> dict[str, Tensor]:
        """Tensors under their public names, bf16, without any tensor of the target."""
        tensors = {name: tensor.detach().to(torch.bfloat16) for name, tensor in self.state_dict().items()}
        if self.token_map is not None:
            tensors["token_map"] = self.token_map.to(torch.int32)
        return tensors


def _causal(rows: int, seen: int, like: Tensor) -> Tensor:
    """Additive mask (rows, seen) for the last `rows` of `seen` slots."""
    return torch.full((rows, seen), float("-inf"), dtype=like.dtype, device=like.device).triu(seen - rows + 1)


def load_eagle(
    folder: Path,
    *,
    embed_weight: Tensor,
    output_weight: Tensor,
    device: torch.device | str,
    dtype: torch.dtype,
) -> EagleHead:
    """The head of a checkpoint folder, bound to the target's matrices (V, h).

    A checkpoint with its own `embed_tokens.weight` keeps that one, as the public code does.
    """
    tensors, config = read_checkpoint(folder)
    vocab_size, hidden_size = output_weight.shape
    shape = _read_shape(tensors, config, hidden_size, folder)
    info = describe(folder, tensors, config)
    token_map = read_token_map(tensors, vocab_size, folder)
    head = EagleHead(shape, token_map=token_map, info=info)
    _fill(head, tensors, folder)
    if "embed_tokens.weight" in tensors:
        embed_weight = need(tensors, "embed_tokens.weight", (vocab_size, hidden_size), folder)
    head = head.to(device=device, dtype=dtype).eval().requires_grad_(False)
    head.bind(embed_weight.to(device), output_weight.to(device))
    return head


def _read_shape(tensors: Mapping[str, Tensor], config: Mapping[str, Any], hidden_size: int, folder: Path) -> EagleShape:
    """Sizes from keys and shapes first; the config only says what the tensors cannot."""
    if any(name.startswith("midlayer.") or name == "d2t" for name in tensors):
        raise ExplorerError(f"The drafter in {folder} is an EAGLE-3 head, which this loader does not take.")
    for name in ("fc.weight", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight"):
        if name not in tensors or tensors[name].ndim != 2:
            raise ExplorerError(f"The drafter in {folder} is not an EAGLE head: it lacks the tensor {name}.")
    found = tensors["fc.weight"].shape[0]
    if found != hidden_size:
        raise ExplorerError(
            f"The EAGLE head in {folder} is made for hidden size {found}, the target has {hidden_size}."
        )
    width = tensors["layers.0.self_attn.q_proj.weight"].shape[0]
    kv_width = tensors["layers.0.self_attn.k_proj.weight"].shape[0]
    heads = config_integer(config, "num_attention_heads", None, folder)
    kv_heads = config_integer(config, "num_key_value_heads", heads, folder)
    if width % heads or kv_width % kv_heads or width // heads != kv_width // kv_heads or heads % kv_heads:
        raise ExplorerError(f"The attention heads in config.json of {folder} do not fit its tensors.")
    gate = tensors.get("layers.0.mlp.gate_proj.weight")
    return EagleShape(
        hidden_size=hidden_size,
        intermediate_size=config_integer(config, "intermediate_size", None if gate is None else gate.shape[0], folder),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width // heads,
        rms_norm_eps=_config_number(config, "rms_norm_eps", 1e-6, folder),
        # The draft does not inherit the target's base: absent means 10,000 (methods.md 3.2).
        rope_theta=_config_number(config, "rope_theta", 10000.0, folder),
        fc_bias="fc.bias" in tensors,
        qkv_bias="layers.0.self_attn.q_proj.bias" in tensors,
    )


def _config_number(config: Mapping[str, Any], key: str, default: float, folder: Path) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ExplorerError(f"config.json in {folder} needs a positive number for {key}.")
    return float(value)


def _fill(head: EagleHead, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Copy every parameter, and refuse tensors that would be ignored silently."""
    parameters = dict(head.named_parameters())
    unknown = sorted(set(tensors) - set(parameters) - {"embed_tokens.weight", "token_map"})
    if unknown:
        raise ExplorerError(f"The drafter in {folder} is not a plain EAGLE head: it has the tensor {unknown[0]}.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(need(tensors, name, tuple(parameter.shape), folder))
