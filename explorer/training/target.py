"""The frozen target, as training reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from explorer.drafters.eagle3_head import default_aux_layers
from explorer.errors import ExplorerError
from explorer.load import load_target, weights_sha256
from explorer.training.data import Codec, codec_of


@dataclass(frozen=True)
class FrozenTarget:
    """The model, what encodes text for it, and the hash that names its weights."""

    model: PreTrainedModel
    tokenizer: Any
    codec: Codec
    sha256: str
    embed_weight: Tensor  # (V, h)
    output_weight: Tensor  # (V, h)

    @property
    def config(self) -> PretrainedConfig:
        return self.model.config

    @property
    def vocab_size(self) -> int:
        return int(self.output_weight.shape[0])

    @property
    def sizes(self) -> LayerSizes:
        return layer_sizes(self.model.config)


@dataclass(frozen=True)
class LayerSizes:
    """Sizes of one decoder layer, under the names that every architecture's config maps to its own."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float


def layer_sizes(config: PretrainedConfig) -> LayerSizes:
    """A draft layer is Llama-like whatever the target is: what the target lacks gets Llama's usual value."""
    heads = int(config.num_attention_heads)
    rope = getattr(config, "rope_parameters", None) or {}
    return LayerSizes(
        hidden_size=int(config.hidden_size),
        # GPT-2 leaves its inner width out where it is four times the hidden size.
        intermediate_size=int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size),
        num_heads=heads,
        num_kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        rms_norm_eps=float(getattr(config, "rms_norm_eps", None) or 1e-6),
        rope_theta=float(rope.get("rope_theta") or 10_000.0),
    )


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The target's layers if they are built like Llama's, so that a drafter can start from them; else none."""
    layers = getattr(model.base_model, "layers", None)
    if layers is None or not all(hasattr(layer, "self_attn") and hasattr(layer, "mlp") for layer in layers):
        return []
    return list(layers)


def tap_layers(num_layers: int) -> tuple[int, ...]:
    """The three states that EAGLE-3 fuses; a target of few layers gives its first, middle and last inner ones."""
    try:
        return default_aux_layers(num_layers)
    except ExplorerError:
        # Too few layers for the paper's choice: the same state may be taken twice, which costs width only.
        return (min(1, num_layers), max(1, num_layers // 2), max(1, num_layers - 1))


def load_frozen(
    folder: Path, *, sha256: str | None, dtype: str = "bfloat16", device: str = "cpu", chat: bool = True
) -> FrozenTarget:
    """Load model and tokenizer from a local folder.

    bfloat16 halves the time of the features; they are stored in it anyway.
    """
    name = folder.name
    # drafters start from the layers' plain weights, and training reads from the model's own forward
    target = load_target(folder, model_id=name, label=name, device=device, dtype=dtype, keep_weights=True, fuse=False)
    if chat and getattr(target.tokenizer, "chat_template", None) is None:
        raise ExplorerError(f"The model in {folder} has no chat template, so its prompts cannot be built.")
    return FrozenTarget(
        model=target.transformers_model.requires_grad_(False),
        tokenizer=target.tokenizer,
        codec=codec_of(target.tokenizer),
        sha256=sha256 or weights_sha256(folder),
        embed_weight=target.embed_weight.detach(),
        output_weight=target.output_weight.detach(),
    )


def use_threads(threads: int) -> None:
    """Limit torch to `threads` CPU threads (two processes that share two cores gain from one thread each)."""
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)


def end_token_ids(target: FrozenTarget) -> frozenset[int]:
    """Every id that ends an output: the generation config's and the tokenizer's."""
    configured = target.model.generation_config.eos_token_id if target.model.generation_config else None
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(int(token) for token in [*ids, target.tokenizer.eos_token_id] if token is not None)
