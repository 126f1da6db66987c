"""The frozen target, as training reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from explorer.errors import ExplorerError
from explorer.load import load_target, weights_sha256
from explorer.training.data import Codec, codec_of


@dataclass(frozen=True)
class FrozenTarget:
    """The model, what encodes text for it, and the hash that names its weights."""

    model: PreTrainedModel
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


def load_frozen(folder: Path, *, sha256: str | None, dtype: str = "bfloat16") -> FrozenTarget:
    """Load model and tokenizer from a local folder, on the CPU.

    bfloat16 halves the time of the features; they are stored in it anyway.
    """
    target = load_target(folder, model_id=folder.name, label=folder.name, device="cpu", dtype=dtype)
    if getattr(target.tokenizer, "chat_template", None) is None:
        raise ExplorerError(f"The model in {folder} has no chat template, so its prompts cannot be built.")
    return FrozenTarget(
        model=target.transformers_model.requires_grad_(False),
        codec=codec_of(target.tokenizer),
        sha256=sha256 or weights_sha256(folder),
        embed_weight=target.embed_weight.detach(),
        output_weight=target.output_weight.detach(),
    )


def use_threads(threads: int) -> None:
    """Limit torch to `threads` CPU threads (two processes that share two cores gain from one thread each)."""
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)
