"""A small causal LM as a drafter (Leviathan et al. 2023, arXiv 2211.17192, section 2).

Two kinds of folder: any transformers causal LM with the target's vocabulary, and this project's own layout,
a few Llama decoder layers and their last norm between the target's own embedding and output head. The own
layout holds no tensor of the target: `layers.{i}.*`, `norm.weight`, an optional `token_map` that limits the
output head to the rows of a draft vocabulary, and a config.json with the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from explorer.drafters.checkpoint import DrafterInfo
from explorer.load import describe
from explorer.target import TargetModel


@dataclass(frozen=True)
class DraftShape:
    """Sizes of the decoder layers; the hidden size is the target's."""

    num_layers: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_tokens: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    def config(self) -> dict[str, Any]:
        """As config.json names them."""
        names = {"num_layers": "num_hidden_layers", "context_tokens": "max_position_embeddings"}
        names |= {"num_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads"}
        return {names.get(key, key): value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class DraftModel:
    """A drafter that is a language model itself, with its own cache and its own passes."""

    model: TargetModel
    """Its logits are (T, D), over the draft vocabulary where there is a `token_map`."""
    info: DrafterInfo
    token_map: Tensor | None = None
    """(D,) long: target id of each draft id. None: draft ids are target ids."""

    @classmethod
    def new(
        cls, shape: DraftShape, target: TargetModel, *, token_map: Tensor | None = None, info: DrafterInfo | None = None
    ) -> DraftModel:
        """Untrained layers between the target's embedding and its output head."""
        matrices = {"embed_weight": target.embed_weight, "output_weight": target.output_weight}
        return cls.of(new_transformer(shape, **matrices, token_map=token_map), target, token_map=token_map, info=info)

    @classmethod
    def of(
        cls, module: LlamaForCausalLM, target: TargetModel, *, token_map: Tensor | None, info: DrafterInfo | None = None
    ) -> DraftModel:
        """The drafter of a module that `new_transformer` made."""
        own = own_tensors(module)
        count = sum(tensor.numel() for tensor in own.values())
        info = info or DrafterInfo("untrained", count, sum(each.nbytes for each in own.values()), None)
        told = describe(module, model_id=info.id, label=info.id)
        if token_map is not None:
            token_map = token_map.to(target.device)
        return cls(TargetModel(module, target.tokenizer, told), info, token_map)

    @property
    def module(self) -> Any:
        """The transformers model inside."""
        return self.model.transformers_model

    def export(self) -> dict[str, Tensor]:
        """The own layout's tensors, bf16, without any tensor of the target."""
        tensors = {name: tensor.to(torch.bfloat16) for name, tensor in own_tensors(self.module).items()}
        if self.token_map is not None:
            tensors["token_map"] = self.token_map.to(torch.int32)
        return tensors


def new_transformer(
    shape: DraftShape, *, embed_weight: Tensor, output_weight: Tensor, token_map: Tensor | None = None
) -> LlamaForCausalLM:
    """Llama layers between two frozen matrices (V, h) of the target, in their type and on their device.

    The matrices are shared, not copied; with a `token_map` the output head holds a copy of its rows.
    """
    vocab_size, hidden_size = embed_weight.shape
    settings: dict[str, Any] = shape.config()
    settings["rope_parameters"] = {"rope_type": "default", "rope_theta": settings.pop("rope_theta")}
    settings |= {"tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None}
    settings |= {"hidden_size": hidden_size, "attn_implementation": "sdpa"}
    config = LlamaConfig(vocab_size=1, **settings)  # both matrices are put in below
    module: Any = LlamaForCausalLM(config)
    module.to(embed_weight.device, embed_weight.dtype)
    rows = output_weight if token_map is None else output_weight[token_map.to(output_weight.device)]
    module.set_input_embeddings(nn.Embedding.from_pretrained(embed_weight.detach(), freeze=True))
    head = nn.Linear(hidden_size, rows.shape[0], bias=False, device="meta")
    head.weight = nn.Parameter(rows.detach(), requires_grad=False)
    module.set_output_embeddings(head)
    config.vocab_size = vocab_size
    return module


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of the layers and of the last norm, under the own layout's names."""
    state: Mapping[str, Tensor] = module.state_dict()
    names = {name: name.removeprefix("model.") for name in state}
    return {short: state[name].detach() for name, short in names.items() if short.startswith(("layers.", "norm."))}
