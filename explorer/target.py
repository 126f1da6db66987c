"""The target model: any transformers causal LM whose cache can be rolled back, one pass over a whole tree."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn

from explorer.architectures import context_tokens, refuse_unsupported
from explorer.cache import KeyValueCache, LayerShape
from explorer.errors import ExplorerError
from explorer.execution import Execution
from explorer.fused import FusedDecoder
from explorer.probe import Probe, probe
from explorer.products import Product
from explorer.static import StaticCache, StaticPasses
from explorer.texts import TokenTexts
from explorer.trace import ModelInfo
from explorer.transfers import to_device
from explorer.tree import CandidateTree

PREFILL_CHUNK_TOKENS = 128
TAP_LAST = "last"
"""The hidden state after the final norm: what the output head reads. Medusa and EAGLE ask for it."""
_HIDDEN = "hidden:"


def tap_hidden(index: int) -> str:
    """The tap of transformers' hidden_states[index]: what layer `index` reads, before any norm (0: embeddings)."""
    return f"{_HIDDEN}{index}"


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
    """Owns the weights, which all lanes share. Each lane has its own cache.

    Where accelerate has spread the weights over devices, `device` is the one that token ids go to; logits and taps
    come back to it. `execution` says how the lanes' passes run; the prompt's are always eager. `decoder` runs them in
    the place of the model's own forward.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        info: ModelInfo,
        execution: Execution = "eager",
        *,
        decoder: FusedDecoder | None = None,
    ) -> None:
        refuse_unsupported(model.config, stateful=bool(getattr(model, "_is_stateful", False)))
        self._model = model.eval()
        self.tokenizer = tokenizer
        self.info = info
        self.texts = TokenTexts(tokenizer)
        self.device, self.dtype = execution_device(model), next(model.parameters()).dtype
        self._execution = execution
        self.decoder = decoder

    def with_decoder(self, decoder: FusedDecoder) -> TargetModel:
        """The same model with its passes run by `decoder`."""
        return TargetModel(self._model, self.tokenizer, self.info, self._execution, decoder=decoder)

    def with_execution(self, execution: Execution) -> TargetModel:
        """The same model, the decoder too, with another execution."""
        return TargetModel(self._model, self.tokenizer, self.info, execution, decoder=self.decoder)

    @property
    def transformers_model(self) -> Any:
        """The wrapped model: benchmarks and training compare with it or read from it."""
        return self._model

    @property
    def context_tokens(self) -> int:
        """Longest sequence that the model was made for."""
        return context_tokens(self._model.config)

    @property
    def vocabulary_tokens(self) -> int:
        """Number of logits in a row."""
        return int(self._model.config.vocab_size)

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return int(self._model.config.num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        """Width of the hidden state that the output head reads."""
        return int(self._model.get_output_embeddings().weight.shape[1])

    @cached_property
    def embed_weight(self) -> Tensor:
        """(V, hidden) input embeddings; drafters share them."""
        return _weight(self._model.get_input_embeddings(), self.device)

    @cached_property
    def output_weight(self) -> Tensor:
        """(V, hidden) output head; drafters share it."""
        return _weight(self._model.get_output_embeddings(), self.device)

    @cached_property
    def end_token_ids(self) -> frozenset[int]:
        """Every id that ends an output: the generation config's and the tokenizer's."""
        configured = getattr(self._model.generation_config, "eos_token_id", None)
        ids = configured if isinstance(configured, list | tuple) else [configured]
        return frozenset(int(token) for token in [*ids, self.tokenizer.eos_token_id] if token is not None)

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def execution(self) -> Execution:
        """How passes run now: graphs that cannot be captured become eager passes."""
        return "eager" if self._execution == "graphs" and not self.static_passes.captures else self._execution

    def new_cache(self, capacity: int) -> KeyValueCache:
        """An empty cache for `capacity` positions; what kind it is decides how passes over it run."""
        if self.execution == "eager":
            return KeyValueCache(self._probe.layers, capacity)
        return self.static_passes.new_cache(capacity)

    def prepare(
        self,
        tree: CandidateTree,
        cache: KeyValueCache,
        riders: Riders | None = None,
        taps: frozenset[str] = frozenset(),
    ) -> None:
        """What has to be made once before such a pass runs the first time; a lane's clock should not pay for it."""
        if isinstance(cache, StaticCache):
            self.static_passes.prepare(len(tree) + (len(riders.token_ids) if riders else 0), cache, taps)

    @cached_property
    def static_passes(self) -> StaticPasses:
        """Padded passes over this model; lanes use them where `execution` says so."""
        return StaticPasses(
            self._decode, self._probe.layers, self.device, self.dtype, capture=self._execution == "graphs"
        )

    @property
    def cache_layers(self) -> tuple[LayerShape, ...]:
        """What each layer keeps of a position."""
        return self._probe.layers

    @cached_property
    def _output(self) -> Product:
        head = self._model.get_output_embeddings()
        return Product(head.weight, head.bias)

    @cached_property
    def _probe(self) -> Probe:
        return probe(self._model, self.device)

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
        cache = KeyValueCache(self._probe.layers, len(token_ids))
        gathered: dict[str, list[Tensor]] = {tap: [] for tap in taps}
        last = torch.empty(0)
        for start in range(0, len(token_ids), PREFILL_CHUNK_TOKENS):
            chunk = list(token_ids[start : start + PREFILL_CHUNK_TOKENS])
            rows = torch.arange(len(chunk))
            causal = rows[:, None] >= rows[None, :]  # (C, C)
            tapped = self._forward(chunk, rows.tolist(), causal, cache, taps)
            last = tapped[TAP_LAST]  # (C, hidden)
            cache.commit(range(len(chunk)))
            for tap in taps:
                gathered[tap].append(tapped[tap])
            yield (start + len(chunk)) / len(token_ids)
        logits = self._head(last[-1:])[0]
        return Prefill(list(token_ids), cache, logits, {tap: torch.cat(parts) for tap, parts in gathered.items()})

    @torch.inference_mode()
    def verify(
        self,
        tree: CandidateTree,
        cache: KeyValueCache,
        riders: Riders | None = None,
        taps: frozenset[str] = frozenset(),
    ) -> PassOutput:
        """One pass over the tree (and riders): every row sees the cache, its ancestors and itself.

        The last hidden states are always in the output's taps, others where asked for. The rows lie behind
        `cache.length` afterwards; `cache.commit` decides which of them stay.
        """
        token_ids, offsets, visible = tree.token_ids, list(tree.depths), tree.visibility()
        if riders is not None:
            visible = _with_riders(visible, riders.visible)
            token_ids, offsets = token_ids + riders.token_ids, offsets + riders.offsets
        tapped = self._forward(token_ids, offsets, visible, cache, taps)
        return PassOutput(self._head(tapped[TAP_LAST]), tapped)

    def _forward(
        self, token_ids: list[int], offsets: list[int], visible: Tensor, cache: KeyValueCache, taps: frozenset[str]
    ) -> dict[str, Tensor]:
        """Hidden states (T, hidden) per tap, the last ones always.

        offsets: each row's position, counted from the cache's end; visible: (T, T) bool among the new rows.
        """
        if cache.length + len(token_ids) > cache.capacity:
            raise ExplorerError(
                f"The cache holds {cache.capacity} positions and is full; ask for fewer new tokens or a smaller tree."
            )
        if isinstance(cache, StaticCache):
            return self.static_passes.run(token_ids, offsets, visible, cache, taps)
        positions = [cache.length + offset for offset in offsets]
        ids_and_positions = to_device([token_ids, positions], self.device)  # (2, T)
        mask = to_device(additive_mask(visible, cache.length, self.dtype), self.device)
        return self._decode(ids_and_positions[0:1], ids_and_positions[1:2], mask, cache, taps)

    def _decode(
        self, token_ids: Tensor, positions: Tensor, mask: Tensor, cache: KeyValueCache, taps: frozenset[str]
    ) -> dict[str, Tensor]:
        """The decoder on what is on the device: (1, T), (1, T), (1, 1, T, C) to hidden states (T, hidden) per tap."""
        wanted = sorted(int(tap.removeprefix(_HIDDEN)) for tap in taps if tap.startswith(_HIDDEN))
        if self.decoder is not None:
            last, states = self.decoder(token_ids, positions, mask, cache, wanted)
            return {TAP_LAST: last} | {tap_hidden(index): state for index, state in states.items()}
        output = self._model.get_decoder()(
            input_ids=token_ids,
            position_ids=positions,
            attention_mask=mask,
            cache=cache,
            use_cache=True,
            **({"output_hidden_states": wanted} if wanted else {}),
        )
        tapped = {tap_hidden(index): output.hidden_states[index][0] for index in wanted}
        tapped[TAP_LAST] = output.last_hidden_state[0]
        return {tap: state.to(self.device) for tap, state in tapped.items()}

    def _head(self, hidden: Tensor) -> Tensor:
        """(T, hidden) to logits (T, V), the very ones of the model's own forward."""
        head = self._model.get_output_embeddings()
        # accelerate's hook fetches a head that is kept elsewhere, so only the module itself may be called then
        if type(head) is nn.Linear and not hasattr(head, "_hf_hook"):
            return self._probe.finish(self._output(hidden))
        return self._probe.finish(head(hidden).to(self.device))


def additive_mask(visible: Tensor, cached: int, dtype: torch.dtype) -> Tensor:
    """(1, 1, T, cached + T) mask: 0 where a row may look, the dtype's lowest number elsewhere.

    All cached positions are visible. transformers adds a 4-D mask as it is, so a bool mask would be
    silently wrong.
    """
    rows = visible.shape[0]
    mask = torch.zeros(rows, cached + rows, dtype=dtype)
    mask[:, cached:].masked_fill_(~visible, torch.finfo(dtype).min)
    return mask[None, None]


def execution_device(model: Any) -> torch.device:
    """Where token ids go: the embedding's device, or the one that accelerate brings it to for its pass."""
    embedding = model.get_input_embeddings()
    for module in (embedding, model):
        device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return embedding.weight.device


def _weight(module: nn.Module, device: torch.device) -> Tensor:
    """A module's weight on that device: the tensor itself where it lies there, a copy where it is kept elsewhere."""
    with align_module_device(module):
        weight = module.weight
        assert isinstance(weight, Tensor)
        # what was fetched for this moment is dropped again when the block ends
        return weight.detach().to(device).clone() if hasattr(module, "_hf_hook") else weight.detach()


def _with_riders(tree_visible: Tensor, rider_visible: Tensor) -> Tensor:
    """(T + R, T + R): riders see the root and one another as they say; tree nodes never see riders."""
    nodes, riders = tree_visible.shape[0], rider_visible.shape[0]
    visible = torch.zeros(nodes + riders, nodes + riders, dtype=torch.bool)
    visible[:nodes, :nodes] = tree_visible
    visible[nodes:, 0] = rider_visible[:, 0]
    visible[nodes:, nodes:] = rider_visible[:, 1:]
    return visible
