"""What passes read, recorded with every run: sizes of target and drafter, and how fast this machine reads memory.

The cost model (explorer/roofline.py) needs them. Weights are counted once, however often a pass uses them; an input
embedding is a look-up of single rows and counts only where it is the output head too. All experts of a mixture count.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import nn

from explorer.target import TargetModel
from explorer.trace import DrafterInfo, ModelInfo, ModelShape

MOST_BYTES = 256_000_000
"""Enough to leave every cache; the default model has twice as much."""
ROUNDS = 5


def target_info(target: TargetModel) -> ModelInfo:
    """The target's record, with its sizes and the memory bandwidth measured now."""
    return target.info.model_copy(update={"shape": shape_of(target), "memory_gb_s": memory_gb_s(target)})


def shape_of(target: TargetModel) -> ModelShape:
    """Sizes that a pass depends on, from the loaded model itself."""
    layers = target.cache_layers
    config = target.transformers_model.config
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    return ModelShape(
        pass_parameters=read_parameters(target),
        layers=len(layers),
        attention_size=heads * layers[0].key_dim if heads else target.hidden_size,
        cache_values=sum(each.kv_heads * (each.key_dim + each.value_dim) for each in layers),
    )


def read_parameters(target: TargetModel) -> int:
    """Parameters of a language model that a pass reads. Counted when it was loaded: layers may keep them otherwise."""
    model = target.transformers_model
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return target.info.parameters - (0 if embedding is head else embedding.numel())


def drafter_info(drafter: Any) -> DrafterInfo:
    """The drafter's record, with what one of its passes reads, borrowed rows of the target's output head included."""
    told = DrafterInfo(**vars(drafter.info))
    model = getattr(drafter, "model", None)
    if isinstance(model, TargetModel):
        sizes = {"pass_parameters": read_parameters(model), "layers": model.num_layers}
    elif isinstance(drafter, nn.Module):
        borrowed = getattr(drafter, "output_weight", None)
        own = sum(each.numel() for each in drafter.parameters())
        sizes = {"pass_parameters": own + (0 if borrowed is None else borrowed.numel()), "layers": 1}
    else:
        return told
    return told.model_copy(update=sizes)


@torch.inference_mode()
def memory_gb_s(target: TargetModel) -> float:
    """Median rate, in 10^9 bytes a second, of adding up as many bytes as the weights have."""
    wanted = min(MOST_BYTES, 4 * target.info.parameters)
    block = torch.ones(max(wanted // 4, 1), device=target.device)
    spent = []
    for _ in range(ROUNDS + 1):
        target.synchronize()
        begin = time.perf_counter()
        block.sum()
        target.synchronize()
        spent.append(time.perf_counter() - begin)
    return round(block.nbytes / statistics.median(spent[1:]) / 1e9, 3)
