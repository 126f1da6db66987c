"""A Llama-like decoder's pass in fewer, larger operations: what transformers computes, rounded in the same places.

A pass over a few rows waits for the reading of weights, and next to that for the calls of thirty layers. So query, key
and value are one product, gate and up are another, keys and queries are rotated together, and the mask is laid out once
for all layers. Measured in docs/design/cpu-products.md.

Which models it fits is told by their type and modules; that it computes the same is measured when a model is loaded
(explorer/selfcheck.py). Where it does not, the model's own forward stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.cache import KeyValueCache
from explorer.products import FusedPart, fuse_layer, pack_linears

_KINDS = ("llama", "mistral", "qwen2")
"""Model types whose layers are a Llama's. The modules' names alone do not tell: others have the same ones and do more,
as Ministral 3, which scales its queries at long contexts, or SmolLM 3, some of whose layers rotate nothing."""
_DECODER = {"embed_tokens", "layers", "norm", "rotary_emb"}
_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}

Rows = Callable[[Tensor], Tensor]
"""(T, in) to (T, out)."""


def pack(model: Any, *, keep: nn.Module | None = None, keep_weights: bool = False) -> FusedDecoder | None:
    """Pack a model's layers (see `pack_linears`, whose arguments these are), fused where its kind is known.

    Returns what then runs its decoder: (1, T) token ids to (T, h). None where the kind is not known or nothing can be
    packed here. The model's own forward works in both cases; where projections are fused it makes each of them as often
    as it has parts.
    """
    decoder: Any = model.get_decoder() if hasattr(model, "get_decoder") else None
    fits = decoder is not None and _fits(decoder)
    if fits:
        for layer in decoder.layers:
            fuse_layer(layer.self_attn, layer.mlp, keep_weights=keep_weights)
    pack_linears(model, keep=keep, keep_weights=keep_weights)
    fused = fits and all(isinstance(part, FusedPart) for layer in decoder.layers for part in _firsts(layer))
    return FusedDecoder(decoder) if fused else None


def _fits(decoder: Any) -> bool:
    """Is it of a known kind, with the modules that a Llama has and no others?"""
    if decoder.config.model_type not in _KINDS or _children(decoder) != _DECODER:
        return False
    if len(decoder.layers) != decoder.config.num_hidden_layers:
        return False
    return all(
        _children(layer) == _LAYER
        and _children(layer.self_attn) == _ATTENTION
        and _children(layer.mlp) == _MLP
        and all(hasattr(norm, "variance_epsilon") for norm in (layer.input_layernorm, layer.post_attention_layernorm))
        for layer in decoder.layers
    ) and hasattr(decoder.norm, "variance_epsilon")


def _children(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _firsts(layer: Any) -> Iterable[nn.Module]:
    """The first part of each fused product."""
    return layer.self_attn.q_proj, layer.mlp.gate_proj


class FusedDecoder:
    """The decoder of one model, on the model's own tensors. For inference on a CPU, one sequence at a time."""

    def __init__(self, decoder: Any) -> None:
        self._embed, self._rotary = decoder.embed_tokens, decoder.rotary_emb
        self._norm = _Norm.of(decoder.norm)
        self._layers = [_Layer.of(layer) for layer in decoder.layers]
        self._groups = int(decoder.layers[0].self_attn.num_key_value_groups)

    def __call__(
        self, token_ids: Tensor, positions: Tensor, mask: Tensor, cache: KeyValueCache, wanted: Iterable[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """token_ids and positions (1, T), additive mask (1, 1, T, C): the last hidden states (T, h), normed.

        And those that transformers calls hidden_states[i], for each `wanted` i: what layer i reads.
        """
        hidden = F.embedding(token_ids[0], self._embed.weight)  # (T, h)
        cos, sin = self._rotary(hidden, position_ids=positions)  # each (1, T, d)
        turn = cos[0, :, None], _signed(sin[0])[:, None]
        folded = mask.repeat(1, 1, self._groups, 1) if self._groups > 1 else mask  # (1, 1, G * T, C)
        wanted, states = frozenset(wanted), {}
        for index, layer in enumerate(self._layers):
            if index in wanted:
                states[index] = hidden
            hidden = layer.run(hidden, turn, folded, cache.layers[index])
        last = self._norm.run(hidden)
        if len(self._layers) in wanted:
            states[len(self._layers)] = last  # as transformers has it
        return last, states


@dataclass(frozen=True)
class _Norm:
    """Llama's RMSNorm: in float32, and scaled in the weight's type."""

    weight: Tensor
    epsilon: float

    @classmethod
    def of(cls, norm: Any) -> _Norm:
        return cls(norm.weight.detach(), float(norm.variance_epsilon))

    def run(self, rows: Tensor) -> Tensor:
        """(T, h). The scale is a step of its own: given to rms_norm, bfloat16 would be rounded once less."""
        return F.rms_norm(rows, self.weight.shape, None, self.epsilon).mul_(self.weight)


@dataclass(frozen=True)
class _Layer:
    """One decoder layer."""

    norm: _Norm
    project: Rows
    """To queries, keys and values, behind one another."""
    finish: Rows
    inner_norm: _Norm
    widen: Rows
    """To gate and up, behind one another."""
    narrow: Rows
    activation: Rows
    head_dim: int
    groups: int
    """Query heads per key head."""
    scaling: float

    @classmethod
    def of(cls, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            norm=_Norm.of(layer.input_layernorm),
            project=attention.q_proj.whole,
            finish=attention.o_proj.forward,
            inner_norm=_Norm.of(layer.post_attention_layernorm),
            widen=mlp.gate_proj.whole,
            narrow=mlp.down_proj.forward,
            activation=mlp.act_fn,
            head_dim=int(attention.head_dim),
            groups=int(attention.num_key_value_groups),
            scaling=float(attention.scaling),
        )

    def run(self, hidden: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, cache: Any) -> Tensor:
        """(T, h) to (T, h). turn: cos and signed sin (T, 1, d); mask (1, 1, G * T, C)."""
        hidden = hidden + self.finish(self._attend(self.norm.run(hidden), turn, mask, cache))
        gate, up = self.widen(self.inner_norm.run(hidden)).chunk(2, dim=-1)
        return hidden + self.narrow(self.activation(gate).mul_(up))

    def _attend(self, rows: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, cache: Any) -> Tensor:
        """(T, h) to (T, H * d). The rows of a group's heads lie behind one another, as in explorer/attention.py."""
        count = rows.shape[0]
        heads = self.project(rows).view(count, -1, self.head_dim)  # (T, H + 2 K, d)
        kv_heads = heads.shape[1] // (self.groups + 2)
        turned = _turned(heads[:, :-kv_heads], turn)  # (T, H + K, d)
        new_keys, new_values = turned[:, -kv_heads:], heads[:, -kv_heads:]
        keys, values = cache.update(new_keys.transpose(0, 1)[None], new_values.transpose(0, 1)[None])
        queries = turned[:, :-kv_heads].transpose(0, 1).reshape(1, kv_heads, self.groups * count, self.head_dim)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=self.scaling)
        return mixed.reshape(-1, count, self.head_dim).transpose(0, 1).reshape(count, -1)


def _signed(sin: Tensor) -> Tensor:
    """(T, d) with its first half negated: then a rotation by half the width does for `rotate_half`."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


def _turned(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding of (T, heads, d), with Llama's half-split pairing."""
    cos, sin = turn
    return (heads * cos).add_(heads.roll(heads.shape[-1] // 2, -1).mul_(sin))
