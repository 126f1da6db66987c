"""Training of Medusa heads with the target frozen (Medusa-1; arXiv 2401.10774, section 2.2.1).

Head i at position t learns the token t+2+i. Deviations from the paper: the target's soft distribution at
position t+1+i takes the place of the text's token, over a candidate vocabulary; heads count equally (each
has its own parameters, so the paper's 0.8^i only scales its learning rate, which AdamW undoes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.drafters.medusa_heads import MedusaHeads
from explorer.training.evaluate import MedusaReport, evaluate_medusa
from explorer.training.features import Sample
from explorer.training.loop import Stage, StageResult, run_stage
from explorer.training.losses import candidate_rows, soft_cross_entropy
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared, prepare, training_rows
from explorer.training.publish import Clock, publish_medusa

EPOCHS = 3.0
LEARNING_RATE = 2e-3


@dataclass(frozen=True)
class MedusaBatch:
    """Answer positions of several samples, flat: the heads need no context."""

    hidden: Tensor  # (N, h) feature of position t
    later: Tensor  # (N + K, h) features of the same samples; see `offsets`
    offsets: Tensor  # (N,) index into `later` of position t+1, so head i's label is at offsets + i


def make_batch(samples: Sequence[Sample], num_heads: int) -> MedusaBatch:
    """Positions from the last prompt token on, as far as all heads have a label in the text."""
    hidden, later, offsets = [], [], []
    base = 0
    for sample in samples:
        first = sample.example.prompt_length - 1
        # Head K-1 at t is judged by the distribution at t+K, whose token t+K+1 is still part of the text.
        count = len(sample.example) - 1 - num_heads - first
        if count <= 0:
            continue
        hidden.append(sample.features[first : first + count])
        later.append(sample.features[first + 1 : first + count + num_heads])
        offsets.append(base + torch.arange(count))
        base += count + num_heads - 1
    if not hidden:
        size = samples[0].features.shape[-1]
        return MedusaBatch(torch.zeros(0, size), torch.zeros(0, size), torch.zeros(0, dtype=torch.long))
    return MedusaBatch(torch.cat(hidden).float(), torch.cat(later).float(), torch.cat(offsets))


def medusa_loss(heads: MedusaHeads, batch: MedusaBatch, generator: torch.Generator) -> Tensor:
    """Mean soft cross-entropy over heads and positions."""
    assert heads.output_weight is not None
    if len(batch.offsets) == 0:
        return heads.bias.sum() * 0.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            later_logits = F.linear(batch.later, heads.output_weight)  # (M, D)
            rows = candidate_rows(later_logits, generator)
            later_logits = later_logits[:, rows]
        states = heads.states(batch.hidden)  # (K, N, h)
        logits = F.linear(states, heads.output_weight[rows])  # (K, N, C)
        losses = [
            soft_cross_entropy(logits[head], later_logits[batch.offsets + head]) for head in range(heads.num_heads)
        ]
    return torch.stack(losses).mean()


def train_medusa(options: TrainOptions) -> MedusaReport:
    """Train heads for the target in `options.model`, write them to `options.out`, report held-out figures."""
    options = options.with_defaults(epochs=EPOCHS, unroll_epochs=0.0, learning_rate=LEARNING_RATE)
    clock = Clock()
    with clock.part("features"):
        prepared = prepare(options)
    heads = MedusaHeads(options.heads, prepared.target_config.hidden_size, token_map=prepared.token_map)
    heads.bind(prepared.output_weight.float())
    clock.seconds["training"] = run_medusa_stage(heads, prepared, options).seconds
    report = evaluate_medusa(heads, prepared.held_out)
    publish_medusa(heads, prepared, options, report, clock)
    return report


def run_medusa_stage(heads: MedusaHeads, prepared: Prepared, options: TrainOptions) -> StageResult:
    """The only stage; `options` have their defaults filled in."""
    rate, epochs = options.learning_rate or LEARNING_RATE, options.epochs or EPOCHS
    stage = Stage(
        name="medusa",
        lengths=training_rows(prepared),
        epochs=epochs,
        batch_tokens=options.batch_tokens,
        learning_rate=rate,
        seed=options.seed,
        save_every=options.save_every,
        state_path=options.work_folder / "medusa.pt",
        fingerprint=f"{prepared.fingerprint}-{epochs}-{heads.num_heads}-{rate}-{options.batch_tokens}-{options.seed}",
    )

    def loss(indices: Sequence[int], generator: torch.Generator) -> Tensor:
        return medusa_loss(heads, make_batch([prepared.train[i] for i in indices], heads.num_heads), generator)

    return run_stage(heads, loss, stage)
