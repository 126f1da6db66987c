"""The target model: any transformers causal LM whose cache can be rolled back, one pass over a whole tree."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from explorer.cache import KeyValueCache
from explorer.errors import ExplorerError
from explorer.products import output_product
from explorer.texts import TokenTexts
from explorer.trace import ModelInfo
from explorer.tree import CandidateTree

PREFILL_CHUNK_TOKENS = 128
TAP_LAST = "last"
"""The hidden state after the final norm: what the output head reads. Medusa and EAGLE ask for it."""


@dataclass(frozen=True)
class Riders:
    """Extra rows in a pass, behind the tree, whose outputs go back to the method."""

    token_ids: list[int]
    offsets: list[int]
    """Position of each row, counted from the root's."""
    visible: Tensor
    """(R, 1 + R) bool: what a rider attends to besides the cache; column 0 is the root, then the riders."""


@dataclass(frozen=True)
class PassOutput:
    """What one target pass gave: a row per tree node, then a row per rider."""

    logits: Tensor
    """(T + R, V)"""
    taps: dict[str, Tensor]
    """Per tap (T + R, hidden)."""


@dataclass(frozen=True)
class Prefill:
    """The prompt's pass, shared by all lanes."""

    token_ids: list[int]
    cache: KeyValueCache
    logits: Tensor
    """(V,): the row after the last prompt token."""
    taps: dict[str, Tensor] = field(default_factory=dict)
    """Per tap (prompt length, hidden)."""


class TargetModel:
    """Owns the weights, which all lanes share. Each lane has its own cache."""

    def __init__(self, model: Any, tokenizer: Any, info: ModelInfo) -> None:
        refuse_unsupported(model.config)
        self._model = model.eval()
        self.tokenizer = tokenizer
        self.info = info
        self.texts = TokenTexts(tokenizer)
        parameter = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype

    @property
    def transformers_model(self) -> Any:
        """The wrapped model: benchmarks and training compare with it or read from it."""
        return self._model

    @property
    def context_tokens(self) -> int:
        """Longest sequence that the model was made for."""
        return int(self._model.config.max_position_embeddings)

    @property
    def vocabulary_tokens(self) -> int:
        """Number of logits in a row."""
        return int(self._model.config.vocab_size)

    @property
    def hidden_size(self) -> int:
        """Width of the hidden state."""
        return int(self._model.config.hidden_size)

    @property
    def embed_weight(self) -> Tensor:
        """(V, hidden) input embeddings; drafters share them."""
        return self._model.get_input_embeddings().weight.detach()

    @property
    def output_weight(self) -> Tensor:
        """(V, hidden) output head; drafters share it."""
        return self._model.get_output_embeddings().weight.detach()

    @cached_property
    def end_token_ids(self) -> frozenset[int]:
        """Every id that ends an output: the generation config's and the tokenizer's."""
        configured = self._model.generation_config.eos_token_id
        ids = configured if isinstance(configured, list) else [configured]
        return frozenset(int(token) for token in [*ids, self.tokenizer.eos_token_id] if token is not None)

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def new_cache(self, capacity: int) -> KeyValueCache:
        """An empty cache for `capacity` positions."""
        config = self._model.config
        heads = int(config.num_attention_heads)
        return KeyValueCache(
            int(config.num_hidden_layers),
            int(getattr(config, "num_key_value_heads", None) or heads),
            int(getattr(config, "head_dim", None) or config.hidden_size // heads),
            capacity,
            dtype=self.dtype,
            device=self.device,
        )

    def prefill(self, token_ids: Sequence[int], *, taps: frozenset[str] = frozenset()) -> Prefill:
        """Run the whole prompt; `prefill_chunks` without the pauses."""
        chunks = self.prefill_chunks(token_ids, taps=taps)
        while True:
            try:
                next(chunks)
            except StopIteration as end:
                return end.value

    @torch.inference_mode()
    def prefill_chunks(
        self, token_ids: Sequence[int], *, taps: frozenset[str] = frozenset()
    ) -> Generator[float, None, Prefill]:
        """Run the prompt in chunks: yields the share done (0 to 1) after each, and returns the prefill.

        Only the last row's logits are made: all of them would take a gigabyte for a long prompt.
        """
        cache = self.new_cache(len(token_ids))
        hidden: list[Tensor] = []
        last = torch.empty(0)
        for start in range(0, len(token_ids), PREFILL_CHUNK_TOKENS):
            chunk = list(token_ids[start : start + PREFILL_CHUNK_TOKENS])
            rows = torch.arange(len(chunk))
            causal = rows[:, None] >= rows[None, :]  # (C, C)
            last = self._forward(chunk, start + rows, causal, cache)  # (C, hidden)
            cache.commit(range(len(chunk)))
            if TAP_LAST in taps:
                hidden.append(last)
            yield (start + len(chunk)) / len(token_ids)
        logits = self._head(last[-1:])[0]
        return Prefill(list(token_ids), cache, logits, {TAP_LAST: torch.cat(hidden)} if hidden else {})

    @torch.inference_mode()
    def verify(self, tree: CandidateTree, cache: KeyValueCache, riders: Riders | None = None) -> PassOutput:
        """One pass over the tree (and riders): every row sees the cache, its ancestors and itself.

        The rows lie behind `cache.length` afterwards; `cache.commit` decides which of them stay.
        """
        token_ids, offsets, visible = tree.token_ids, list(tree.depths), tree.visibility()
        if riders is not None:
            visible = _with_riders(visible, riders.visible)
            token_ids, offsets = token_ids + riders.token_ids, offsets + riders.offsets
        hidden = self._forward(token_ids, cache.length + torch.tensor(offsets), visible, cache)
        return PassOutput(self._head(hidden), {TAP_LAST: hidden})

    def _forward(self, token_ids: list[int], positions: Tensor, visible: Tensor, cache: KeyValueCache) -> Tensor:
        """Hidden states (T, hidden) after the final norm. visible: (T, T) bool among the new rows."""
        if cache.length + len(token_ids) > cache.capacity:
            raise ExplorerError(
                f"The cache holds {cache.capacity} positions and is full; ask for fewer new tokens or a smaller tree."
            )
        output = self._model.get_decoder()(
            input_ids=torch.tensor([token_ids], device=self.device),
            position_ids=positions[None].to(self.device),
            attention_mask=additive_mask(visible, cache.length, self.dtype).to(self.device),
            cache=cache,
            use_cache=True,
        )
        return output.last_hidden_state[0]

    def _head(self, hidden: Tensor) -> Tensor:
        """(T, hidden) to logits (T, V)."""
        head = self._model.get_output_embeddings()
        if type(head) is nn.Linear and getattr(head, "bias", None) is None:
            return output_product(hidden, head.weight)
        return head(hidden)


def additive_mask(visible: Tensor, cached: int, dtype: torch.dtype) -> Tensor:
    """(1, 1, T, cached + T) mask: 0 where a row may look, the dtype's lowest number elsewhere.

    All cached positions are visible. transformers adds a 4-D mask as it is, so a bool mask would be
    silently wrong.
    """
    rows = visible.shape[0]
    mask = torch.zeros(rows, cached + rows, dtype=dtype)
    mask[:, cached:].masked_fill_(~visible, torch.finfo(dtype).min)
    return mask[None, None]


def refuse_unsupported(config: Any) -> None:
    """ExplorerError that names the architecture and the reason, for models whose cache cannot be rolled back."""
    name = (getattr(config, "architectures", None) or [config.model_type])[0]
    reason = None
    if getattr(config, "is_encoder_decoder", False):
        reason = "it is an encoder-decoder"
    elif any(hasattr(config, key) for key in ("state_size", "ssm_cfg", "rwkv_version", "linear_conv_kernel_dim")):
        reason = "its recurrent state cannot be rolled back"
    elif _slides(config):
        reason = "its sliding-window attention cannot be rolled back"
    elif getattr(config, "alibi", False) or config.model_type in ("mpt", "bloom"):
        reason = "ALiBi ignores position ids, which a candidate tree needs"
    elif not all(hasattr(config, key) for key in ("num_hidden_layers", "num_attention_heads", "hidden_size")):
        reason = "its layers are not described the way Llama's are"
    if reason:
        raise ExplorerError(f"{name} cannot be shown: {reason}. Llama-like causal language models can.")


def _slides(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return any(kind != "full_attention" for kind in kinds)
    return bool(getattr(config, "sliding_window", None)) and getattr(config, "use_sliding_window", True)


def _with_riders(tree_visible: Tensor, rider_visible: Tensor) -> Tensor:
    """(T + R, T + R): riders see the root and one another as they say; tree nodes never see riders."""
    nodes, riders = tree_visible.shape[0], rider_visible.shape[0]
    visible = torch.zeros(nodes + riders, nodes + riders, dtype=torch.bool)
    visible[:nodes, :nodes] = tree_visible
    visible[nodes:, 0] = rider_visible[:, 0]
    visible[nodes:, nodes:] = rider_visible[:, 1:]
    return visible
