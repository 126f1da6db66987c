"""Training of Medusa heads with the target frozen (Medusa-1; arXiv 2401.10774, section 2.2.1).

Head i at position t learns the token t+2+i. Deviations from the paper: the target's soft distribution at
position t+1+i takes the place of the text's token (`labels=text` for the paper's), over a candidate
vocabulary; heads count equally (`head_decay=0.8` for the paper's 0.8^i: each head has its own parameters,
so the weight only scales its learning rate, which AdamW undoes); all heads share the target's output matrix
(`own_output=true` for the paper's own one, which starts as a copy).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.drafters.medusa_heads import MedusaHeads
from explorer.training.evaluate import Report, evaluate_medusa
from explorer.training.features import Sample
from explorer.training.losses import candidate_rows, decayed_mean, soft_cross_entropy
from explorer.training.monitor import Trainee
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared
from explorer.training.publish import medusa_config
from explorer.training.train import Plan, StagePlan, train

EPOCHS = 3.0
LEARNING_RATE = 2e-3


@dataclass(frozen=True)
class MedusaBatch:
    """Answer positions of several samples, flat: the heads need no context."""

    hidden: Tensor  # (N, h) feature of position t
    later: Tensor  # (N + K, h) features of the same samples; see `offsets`
    tokens: Tensor  # (N + K,) token after each of `later`
    offsets: Tensor  # (N,) index into `later` of position t+1, so head i's label is at offsets + i

    def to(self, device: torch.device) -> MedusaBatch:
        return MedusaBatch(*(each.to(device) for each in (self.hidden, self.later, self.tokens, self.offsets)))


def make_batch(samples: Sequence[Sample], num_heads: int) -> MedusaBatch:
    """Positions from the last prompt token on, as far as all heads have a label in the text."""
    hidden, later, tokens, offsets = [], [], [], []
    base = 0
    for sample in samples:
        first = sample.example.prompt_length - 1
        # Head K-1 at t is judged by the distribution at t+K, whose token t+K+1 is still part of the text.
        count = len(sample.example) - 1 - num_heads - first
        if count <= 0:
            continue
        hidden.append(sample.features[first : first + count])
        later.append(sample.features[first + 1 : first + count + num_heads])
        tokens.append(torch.tensor(sample.example.ids[first + 2 : first + 1 + count + num_heads]))
        offsets.append(base + torch.arange(count))
        base += count + num_heads - 1
    if not hidden:
        size, none = samples[0].features.shape[-1], torch.zeros(0, dtype=torch.long)
        return MedusaBatch(torch.zeros(0, size), torch.zeros(0, size), none, none)
    return MedusaBatch(torch.cat(hidden).float(), torch.cat(later).float(), torch.cat(tokens), torch.cat(offsets))


@dataclass(frozen=True)
class MedusaLoss:
    """Mean cross-entropy over heads and positions."""

    heads: MedusaHeads
    output_weight: Tensor
    """(D, h): the target's output matrix, or its rows of the draft vocabulary."""
    decay: float = 1.0
    hard: bool = False
    full: bool = False

    def __call__(self, batch: MedusaBatch, generator: torch.Generator) -> Tensor:
        """The loss of a batch; 0 (with a gradient of 0) where no position has labels for all heads."""
        heads = self.heads
        if len(batch.offsets) == 0:
            return torch.stack([parameter.sum() * 0.0 for parameter in heads.parameters()]).sum()
        with torch.no_grad():
            later_logits = F.linear(batch.later, self.output_weight)  # (M, D)
            rows = candidate_rows(later_logits, generator, full=self.full or self.hard)
            later_logits = later_logits[:, rows]
        states = heads.states(batch.hidden)  # (K, N, h)
        if heads.own_output is None:
            logits = F.linear(states, self.output_weight[rows])  # (K, N, C)
        else:
            logits = torch.bmm(states, heads.own_output[:, rows].transpose(1, 2).to(states.dtype))
        places = [batch.offsets + head for head in range(heads.num_heads)]
        if self.hard:
            losses = [self._text(logits[head], batch.tokens[place]) for head, place in enumerate(places)]
        else:
            losses = [soft_cross_entropy(logits[head], later_logits[place]) for head, place in enumerate(places)]
        return decayed_mean(losses, self.decay)

    def _text(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Cross-entropy against the text's tokens; those outside the draft vocabulary do not count."""
        labels = tokens
        if self.heads.token_map is not None:
            place = torch.searchsorted(self.heads.token_map, tokens).clamp_max(len(self.heads.token_map) - 1)
            labels = torch.where(self.heads.token_map[place] == tokens, place, torch.full_like(place, -100))
        total = F.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum")
        return total / (labels != -100).sum().clamp_min(1)


def train_medusa(options: TrainOptions) -> Report:
    """Train heads for the target in `options.model`, write them to `options.out`, report held-out figures."""
    return train(options.with_defaults(epochs=EPOCHS, learning_rate=LEARNING_RATE), _plan)


def _plan(prepared: Prepared, options: TrainOptions) -> Plan:
    heads = new_medusa(prepared, options)
    output_weight = prepared.output_rows()
    if heads.token_map is not None:
        output_weight = output_weight[heads.token_map]
    loss = MedusaLoss(heads, output_weight, options.head_decay, hard=options.labels == "text", full=options.full_loss)

    def batch_loss(indices: Sequence[int], generator: torch.Generator) -> Tensor:
        batch = make_batch([prepared.train[index] for index in indices], heads.num_heads)
        return loss(batch.to(prepared.device), generator)

    trainee = Trainee(
        title="Medusa heads",
        export=heads.export,
        config=lambda report: medusa_config(heads, report),
        evaluate=lambda limit: evaluate_medusa(heads, prepared.held_out, limit=limit),
    )
    stage = StagePlan("medusa", options.passes, options.rate, options.seed, batch_loss)
    return Plan(heads, trainee, [stage])


def new_medusa(prepared: Prepared, options: TrainOptions) -> MedusaHeads:
    """Untrained heads on the training device: residual blocks of zero, own output matrices as the target's."""
    target, token_map = prepared.target, prepared.token_map
    heads = MedusaHeads(
        options.heads,
        int(target.config.hidden_size),
        num_layers=options.head_layers,
        own_output=target.vocab_size if options.own_output else None,
        token_map=token_map,
    )
    if heads.own_output is not None:
        with torch.no_grad():
            heads.own_output.copy_(target.output_weight.float().cpu().expand_as(heads.own_output))
    heads = heads.to(prepared.device)
    heads.bind(prepared.output_rows())
    return heads
