"""Batched plain decoding for training text: one cache for many rows, finished rows leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

from explorer.errors import ExplorerError
from explorer.training.target import layer_sizes

SAMPLED_FROM = 100
"""Sampling looks at so many of the likeliest tokens: sorting a whole vocabulary a row would cost most."""


class _Layer(CacheLayerMixin):
    """Keys and values (B, kv_heads, capacity, head_dim) of one layer, written in place."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.all_keys, self.all_values, self.length = keys, values, 0
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the buffers exist."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write (B, kv_heads, T, head_dim) behind the cached positions; return views of all so far."""
        end = self.length + key_states.shape[-2]
        self.all_keys[:, :, self.length : end] = key_states
        self.all_values[:, :, self.length : end] = value_states
        self.length = end
        return self.all_keys[:, :, :end], self.all_values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(positions to attend to, offset)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Cached positions."""
        return self.length

    def get_max_length(self) -> int:
        """Positions that fit."""
        return int(self.all_keys.shape[-2])


class BatchCache(Cache):
    """The cache of a batch of rows; `keep` drops the others."""

    def __init__(self, config: PretrainedConfig, rows: int, capacity: int, like: Tensor) -> None:
        sizes = layer_sizes(config)
        shape = (rows, sizes.num_kv_heads, capacity, sizes.head_dim)
        layers = int(config.num_hidden_layers)
        self._views = [_Layer(like.new_empty(shape), like.new_empty(shape)) for _ in range(layers)]
        super().__init__(layers=list(self._views))

    def keep(self, rows: Tensor) -> None:
        """Only these rows stay, in this order."""
        for layer in self._views:
            layer.all_keys = layer.all_keys.index_select(0, rows)
            layer.all_values = layer.all_values.index_select(0, rows)


@dataclass(frozen=True)
class Writing:
    """How rows are continued."""

    max_new_tokens: int
    end_token_ids: frozenset[int]
    seed: int


@torch.inference_mode()
def write_rows(
    model: Any, prompts: Sequence[Sequence[int]], temperatures: Sequence[float], how: Writing
) -> list[list[int]]:
    """The continuation of each prompt, its end token included where it came within the limit.

    temperatures: one a row, 0 is greedy. Rows of any length; all randomness comes from the seed.
    """
    device = model.device
    width = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    seen = torch.zeros(len(prompts), width + how.max_new_tokens, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        seen[row, width - len(prompt) :] = 1  # padding stands on the left, where nobody looks
    ids, seen = ids.to(device), seen.to(device)
    positions = (seen.cumsum(1) - 1).clamp_min(0)
    written: list[list[int]] = [[] for _ in prompts]
    alive = torch.arange(len(prompts), device=device)
    heat = torch.tensor(temperatures, dtype=torch.float32, device=device)
    cache = _new_cache(model, len(prompts), width + how.max_new_tokens)
    generator = torch.Generator().manual_seed(how.seed)
    start, feed = 0, ids
    for _ in range(how.max_new_tokens):
        end = start + feed.shape[1]
        output = model.base_model(
            input_ids=feed,
            attention_mask=seen[alive, :end],
            position_ids=positions[alive, start:end],
            cache=cache,
            use_cache=True,
        )
        chosen = choose(model.get_output_embeddings()(output.last_hidden_state[:, -1]), heat[alive], generator)
        tokens = chosen.tolist()
        for row, token in zip(alive.tolist(), tokens, strict=True):
            written[row].append(token)
        going = torch.tensor([place for place, token in enumerate(tokens) if token not in how.end_token_ids])
        if len(going) == 0:
            break
        going = going.to(device)
        if len(going) < len(tokens):
            cache.keep(going)
        alive, feed, start = alive[going], chosen[going, None], end
    return written


def _new_cache(model: Any, rows: int, capacity: int) -> BatchCache:
    parameter = next(model.parameters())
    try:
        return BatchCache(model.config, rows, capacity, parameter.new_empty(0))
    except RuntimeError as error:
        raise ExplorerError(f"Not enough memory for {rows} rows of {capacity} tokens; use fewer rows.") from error


def choose(logits: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """(B, V) logits -> (B,) tokens: the best where the temperature is 0, else sampled from the best hundred."""
    best = logits.float().topk(min(SAMPLED_FROM, logits.shape[-1]), dim=-1)
    probs = (best.values / temperatures.clamp_min(1e-4)[:, None]).softmax(-1).cpu()
    place = torch.multinomial(probs, 1, generator=generator).to(logits.device)
    place[temperatures == 0] = 0
    return best.indices.gather(1, place)[:, 0]
