"""Training of a small draft model: layers of the target, distilled (arXiv 2211.17192 uses any small model;
distillation of the draft from its target is DistillSpec's, arXiv 2310.08461).

A few decoder layers between the target's own embedding and output matrix learn the target's distribution at
each answer position by soft cross-entropy, which is forward KL up to a constant. They start as layers of the
target where these are built like Llama's. Deviation from DistillSpec: the text is the target's own and fixed,
not sampled from the draft while it trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.draft_model import DraftShape, new_transformer, own_tensors
from explorer.errors import ExplorerError
from explorer.training.evaluate import Report, evaluate_draft_model
from explorer.training.features import Sample
from explorer.training.losses import candidate_rows, soft_cross_entropy
from explorer.training.monitor import Trainee
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared
from explorer.training.publish import draft_model_config
from explorer.training.target import FrozenTarget, decoder_layers
from explorer.training.train import Plan, StagePlan, train

EPOCHS = 2.5
LEARNING_RATE = 1e-3
DEFAULT_LAYERS = (0, 1, -1)


@dataclass(frozen=True)
class DraftBatch:
    """Padded texts of several samples. Position t predicts token t+1."""

    token_ids: Tensor  # (B, T)
    targets: Tensor  # (N, h) the target's last features at the answer positions
    answer: Tensor  # (B, T) bool, N of them: positions whose next token belongs to the answer

    def to(self, device: torch.device) -> DraftBatch:
        return DraftBatch(*(each.to(device) for each in (self.token_ids, self.targets, self.answer)))


def make_batch(samples: Sequence[Sample]) -> DraftBatch:
    """Texts padded on the right (a causal model never looks there, so padding needs no mask)."""
    longest = max(len(sample.example) for sample in samples)
    token_ids = torch.zeros(len(samples), longest, dtype=torch.long)
    answer = torch.zeros(len(samples), longest, dtype=torch.bool)
    targets = []
    for row, sample in enumerate(samples):
        length, first = len(sample.example), sample.example.prompt_length - 1
        token_ids[row, :length] = torch.tensor(sample.example.ids)
        answer[row, first : length - 1] = True
        targets.append(sample.features[first : length - 1].float())
    return DraftBatch(token_ids, torch.cat(targets), answer)


def draft_loss(module: Any, batch: DraftBatch, generator: torch.Generator, *, full: bool = False) -> Tensor:
    """Soft cross-entropy against the target at the answer positions."""
    hidden = module.base_model(input_ids=batch.token_ids, use_cache=False).last_hidden_state[batch.answer]  # (N, h)
    output_weight = module.get_output_embeddings().weight
    with torch.no_grad():
        target_logits = F.linear(batch.targets, output_weight)  # (N, D)
        rows = candidate_rows(target_logits, generator, full=full)
        target_logits = target_logits[:, rows]
    return soft_cross_entropy(F.linear(hidden, output_weight[rows]), target_logits)


def train_draft_model(options: TrainOptions) -> Report:
    """Train a draft model for the target in `options.model`, write it to `options.out`, report held-out figures."""
    return train(options.with_defaults(epochs=EPOCHS, learning_rate=LEARNING_RATE), _plan)


def _plan(prepared: Prepared, options: TrainOptions) -> Plan:
    target, token_map = prepared.target, prepared.token_map
    chosen = _chosen_layers(options.layers or DEFAULT_LAYERS, int(target.config.num_hidden_layers))
    shape = _shape(target, len(chosen))
    module: Any = new_transformer(
        shape, embed_weight=prepared.embed_rows(), output_weight=prepared.output_rows(), token_map=token_map
    )
    _start_from(module, target, chosen)

    def batch_loss(indices: Sequence[int], generator: torch.Generator) -> Tensor:
        batch = make_batch([prepared.train[index] for index in indices])
        return draft_loss(module, batch.to(prepared.device), generator, full=options.full_loss)

    def export() -> dict[str, Tensor]:
        tensors = {name: tensor.to(torch.bfloat16) for name, tensor in own_tensors(module).items()}
        return tensors if token_map is None else {**tensors, "token_map": token_map.to(torch.int32)}

    trainee = Trainee(
        title="Draft model",
        export=export,
        config=lambda report: draft_model_config(shape, int(target.config.hidden_size)),
        evaluate=lambda limit: evaluate_draft_model(module, token_map, prepared.held_out, limit=limit),
    )
    return Plan(module, trainee, [StagePlan("draft-model", options.passes, options.rate, options.seed, batch_loss)])


def _chosen_layers(wanted: Sequence[int], available: int) -> list[int]:
    """Layer numbers from 0; negative ones count from the end, doubles of a short target are left out."""
    if not all(-available <= layer < available for layer in wanted):
        raise ExplorerError(f"layers: the target has {available} layers, numbered 0 to {available - 1}.")
    return sorted({layer % available for layer in wanted})


def _shape(target: FrozenTarget, num_layers: int) -> DraftShape:
    sizes = target.sizes
    return DraftShape(
        num_layers=num_layers,
        intermediate_size=sizes.intermediate_size,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        context_tokens=int(target.config.max_position_embeddings),
        rms_norm_eps=sizes.rms_norm_eps,
        rope_theta=sizes.rope_theta,
    )


def _start_from(module: Any, target: FrozenTarget, chosen: Sequence[int]) -> None:
    """Copy the target's layers and last norm where they are the same tensors; the rest stays as drawn."""
    sources = decoder_layers(target.model)
    if not sources:
        return
    last_norm: Any = target.model.base_model.norm
    pairs: list[tuple[nn.Module, nn.Module]] = [(module.base_model.norm, last_norm)]
    pairs += [(module.base_model.layers[place], sources[layer]) for place, layer in enumerate(chosen)]
    with torch.no_grad():
        for own, source in pairs:
            found = dict(source.named_parameters())
            for name, parameter in own.named_parameters():
                if name in found and found[name].shape == parameter.shape:
                    parameter.copy_(found[name])
