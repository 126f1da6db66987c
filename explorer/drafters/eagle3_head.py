"""EAGLE-3 draft layer (Li et al. 2025, arXiv 2503.01840, section 3).

Three hidden states of the target (low, middle, high) go through `fc` to the feature of a slot. Slot t reads
the normed embedding of token t+1 next to the normed feature t, and gives the next feature as it is, before
the last norm. That output stands for the feature of the next drafted slot; `norm` and the layer's own output
matrix turn it into a distribution over a draft vocabulary. Slot t has position t.

The taps are the *inputs* of layers 2, L//2 and L-3: transformers' `hidden_states[i]`. The residual starts
from the feature before its norm. Variants of public checkpoints are flags of the shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.checkpoint import DrafterInfo
from explorer.drafters.layers import (
    Attention,
    DraftCache,
    GatedMlp,
    RootMeanSquareNorm,
    SlotNetwork,
    SlotShape,
    attend,
)
from explorer.errors import ExplorerError


@dataclass(frozen=True)
class Eagle3Shape(SlotShape):
    """Sizes of the draft layer, and which variant it is."""

    draft_vocab_size: int = 32000
    target_hidden_size: int | None = None
    """None: the layer's own `hidden_size`."""
    taps: int = 3
    """Hidden states that `fc` reads."""
    qkv_bias: bool = False
    qk_norm: bool = False
    """Queries and keys are normed per head (Qwen3 layers)."""
    norm_before_residual: bool = False
    """The residual starts from the normed feature."""
    norm_before_fc: bool = False
    """One norm over all taps, before `fc`."""
    fc_norm: bool = False
    """A norm for each tap, before `fc` (EAGLE-3.1)."""
    norm_output: bool = False
    """The normed output is fed back (EAGLE-3.1)."""
    own_embedding: int | None = None
    """Rows of the layer's own embedding; None: the target's embedding."""

    @property
    def tap_size(self) -> int:
        """Width of one tap."""
        return self.target_hidden_size or self.hidden_size


def default_aux_layers(num_layers: int) -> tuple[int, int, int]:
    """The layers whose inputs the original reads (2, L//2, L-3). ExplorerError where these coincide."""
    layers = (2, num_layers // 2, num_layers - 3)
    if len(set(layers)) < 3 or layers[2] < layers[1]:
        raise ExplorerError(
            f"EAGLE-3 reads layers 2, L//2 and L-3, and a target of {num_layers} layers has no three of these; "
            "its config must name eagle_aux_hidden_state_layer_ids."
        )
    return layers


class Eagle3Layer(nn.Module):
    """One Llama layer whose attention reads embedding and feature, split around the attention scores."""

    def __init__(self, shape: Eagle3Shape) -> None:
        super().__init__()
        size, eps = shape.hidden_size, shape.rms_norm_eps
        self.self_attn = Attention(
            2 * size,
            size,
            heads=shape.num_heads,
            kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            qkv_bias=shape.qkv_bias,
            qk_norm_eps=eps if shape.qk_norm else None,
        )
        self.mlp = GatedMlp(size, shape.intermediate_size)
        self.hidden_norm = RootMeanSquareNorm(size, eps)
        self.input_layernorm = RootMeanSquareNorm(size, eps)
        self.post_attention_layernorm = RootMeanSquareNorm(size, eps)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(..., T, 2h) -> rotated queries (..., heads, T, d), rotated keys and values (..., kv_heads, T, d)."""
        return self.self_attn.project(x, cos, sin)

    def finish(self, residual: Tensor, attended: Tensor) -> Tensor:
        """Residuals and MLP; `attended` is (..., heads, T, d). The raw output (..., T, h)."""
        x = residual + self.self_attn.o_proj(attended.transpose(-3, -2).flatten(-2))
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle3Head(SlotNetwork):
    """The draft layer with its own output matrix; the embedding is the target's unless it has its own."""

    def __init__(
        self,
        shape: Eagle3Shape,
        *,
        token_map: Tensor | None = None,
        aux_layers: tuple[int, ...] | None = None,
        info: DrafterInfo | None = None,
    ) -> None:
        """token_map (D,) long: target id of each draft id. None: draft ids are target ids.

        aux_layers: transformers' `hidden_states` indices of the taps, low to high. None: `default_aux_layers`.
        """
        super().__init__(shape, token_map)
        self.shape = shape
        self.aux_layers = aux_layers
        size, width = shape.hidden_size, shape.taps * shape.tap_size
        self.fc = nn.Linear(width, size, bias=False)
        self.midlayer = Eagle3Layer(shape)
        self.norm = RootMeanSquareNorm(size, shape.rms_norm_eps)
        self.lm_head = nn.Linear(size, shape.draft_vocab_size, bias=False)
        if shape.norm_before_fc:
            self.input_norm = RootMeanSquareNorm(width, shape.rms_norm_eps)
        if shape.fc_norm:
            self.fc_norm = nn.ModuleList(
                RootMeanSquareNorm(shape.tap_size, shape.rms_norm_eps) for _ in range(shape.taps)
            )
        if shape.own_embedding is not None:
            self.embed_tokens = nn.Embedding(shape.own_embedding, size)
        own = sum(parameter.numel() for parameter in self.parameters())
        self.info = info or DrafterInfo("untrained", own, own * self.fc.weight.element_size(), None)

    @property
    def layer(self) -> Eagle3Layer:
        """Under the name that EAGLE-1's head has for it."""
        return self.midlayer

    def taps_of(self, num_layers: int) -> tuple[int, ...]:
        """`hidden_states` indices to read from a target of that many layers, low to high."""
        return self.aux_layers or default_aux_layers(num_layers)

    def bind(self, embed_weight: Tensor) -> None:
        """Take the target's embedding (V, h), unless the layer has its own; not copied where the type agrees."""
        if self.shape.own_embedding is not None:
            self.embed_weight = self.embed_tokens.weight.detach()
            return
        if embed_weight.shape[-1] != self.hidden_size:
            raise ExplorerError(
                f"The EAGLE-3 head is made for hidden size {self.hidden_size}, the target has {embed_weight.shape[-1]}."
            )
        self.embed_weight = embed_weight.detach().to(self.fc.weight)

    def fuse_features(self, taps: Tensor) -> Tensor:
        """(..., T, taps * target's h), low to high -> (..., T, h): the features of true slots."""
        if self.shape.norm_before_fc:
            taps = self.input_norm(taps)
        if self.shape.fc_norm:
            parts = taps.split(self.shape.tap_size, dim=-1)
            taps = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return self.fc(taps)

    def slot_inputs(self, token_ids: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer's attention reads (..., T, 2h) and what its residual starts from (..., T, h)."""
        normed = self.midlayer.hidden_norm(features)
        x = torch.cat((self.midlayer.input_layernorm(self.embed(token_ids)), normed), dim=-1)
        return x, normed if self.shape.norm_before_residual else features

    def forward(
        self, token_ids: Tensor, features: Tensor, positions: Tensor, cache: DraftCache, mask: Tensor | None = None
    ) -> Tensor:
        """Run T slots behind those in the cache and append them.

        token_ids (T,): token t+1 of slot t; features (T, h): from `fuse_features` for true slots, from this
        function's output for drafted ones; positions (T,) < cache.capacity; mask (T, cache.length + T)
        additive, None = causal. Returns the predicted next features (T, h).
        """
        x, residual = self.slot_inputs(token_ids, features)
        queries, keys, values = self.midlayer.project(x, *self.rotary(positions))
        cache.append(keys, values)
        return self.output(self.midlayer.finish(residual, attend(queries, cache, mask)))

    def output(self, raw: Tensor) -> Tensor:
        """The layer's raw output as it is fed back and as `logits` reads it."""
        return self.norm(raw) if self.shape.norm_output else raw

    def logits(self, features: Tensor) -> Tensor:
        """(T, h) of `forward`'s output -> (T, D) over the draft vocabulary."""
        normed = features if self.shape.norm_output else self.norm(features)
        logits: Tensor = self.lm_head(normed)
        return logits

    def log_probs(self, features: Tensor) -> Tensor:
        """(T, h) -> (T, D) log-softmax over the draft vocabulary, float32 (no temperature: EAGLE-2, 4.1)."""
        return F.log_softmax(self.logits(features).float(), dim=-1)

    def export(self) -> dict[str, Tensor]:
        """Tensors under the official names, bf16; `d2t` holds offsets: target id = draft id + d2t[draft id]."""
        tensors = {name: tensor.detach().to(torch.bfloat16) for name, tensor in self.state_dict().items()}
        if self.token_map is not None:
            tensors["d2t"] = self.token_map.cpu() - torch.arange(len(self.token_map))
        return tensors
