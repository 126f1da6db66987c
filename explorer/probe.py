"""What only a pass through a model tells for sure: what its layers cache, and what it makes of its head's output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from explorer.cache import LayerShape
from explorer.errors import ExplorerError

Finish = Callable[[Tensor], Tensor]
PROBE_TOKENS = 3
CLOSE = {torch.float32: 1e-4, torch.float64: 1e-4}
CLOSE_IN_HALF = 2e-2


@dataclass(frozen=True)
class Probe:
    """The cache's layers, and what turns the output matrix's product into logits."""

    layers: tuple[LayerShape, ...]
    finish: Finish


@torch.inference_mode()
def probe(model: Any, device: torch.device) -> Probe:
    """Run a few tokens through the model's own forward. ExplorerError where it has no cache or head of the usual kind.

    Shapes from a pass and not from the config: multi-query heads, head sizes and devices have many names there.
    """
    name = type(model).__name__
    head = model.get_output_embeddings()
    if head is None:
        raise ExplorerError(f"{name} cannot be shown: it has no output head.")
    cache, read = DynamicCache(), []
    handle = head.register_forward_hook(lambda module, args, output: read.append(output))
    token_ids = spread_tokens(model.config.vocab_size, PROBE_TOKENS)
    try:
        logits = model(input_ids=torch.tensor([token_ids], device=device), cache=cache, use_cache=True).logits
    except (TypeError, ValueError, AttributeError, IndexError, NotImplementedError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:160]
        raise ExplorerError(f"{name} cannot be shown: it does not take the usual cache ({reason}).") from error
    finally:
        handle.remove()
    layers = tuple(_shape(layer) for layer in cache.layers if getattr(layer, "keys", None) is not None)
    if not layers or len(layers) != len(cache.layers):
        raise ExplorerError(f"{name} cannot be shown: it does not fill the usual cache, so it cannot be rolled back.")
    if len(read) != 1:
        raise ExplorerError(f"{name} cannot be shown: its logits are not made by its output head.")
    return Probe(layers, _finish_of(model, read[0].to(logits.device), logits))


def spread_tokens(vocab_size: int, count: int) -> list[int]:
    """Different token ids from all over a vocabulary."""
    return [(7919 * place + 11) % vocab_size for place in range(1, count + 1)]


def _shape(layer: Any) -> LayerShape:
    keys, values = layer.keys, layer.values
    return LayerShape(keys.shape[1], keys.shape[-1], values.shape[-1], keys.dtype, keys.device)


def _finish_of(model: Any, raw: Tensor, logits: Tensor) -> Finish:
    """The step behind the head that gives the model's own logits: none, a scale (Cohere, Granite), a cap (Gemma 2)."""
    config = model.config
    scales = [float(scale) for key in ("logit_scale", "logits_scaling") if (scale := getattr(config, key, None))]
    tried: list[Finish] = [_as_it_is]
    tried += [_scaled(factor) for scale in scales for factor in (scale, 1 / scale)]
    cap = getattr(config, "final_logit_softcapping", None)
    tried += [_capped(float(cap))] if cap else []
    bound = CLOSE.get(logits.dtype, CLOSE_IN_HALF) * max(float(logits.abs().max()), 1e-6)
    for finish in tried:
        if float((finish(raw) - logits).abs().max()) <= bound:
            return finish
    raise ExplorerError(f"{type(model).__name__} cannot be shown: its logits are not those of its output head.")


def _as_it_is(logits: Tensor) -> Tensor:
    return logits


def _scaled(factor: float) -> Finish:
    return lambda logits: logits * factor


def _capped(cap: float) -> Finish:
    return lambda logits: torch.tanh(logits / cap) * cap
