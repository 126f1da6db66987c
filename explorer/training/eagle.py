"""Training of the EAGLE layer.

Stage 1 (EAGLE-1, arXiv 2401.15077, section 3.2): every slot on the true feature; smooth-L1 of the feature
plus soft cross-entropy of the token that it stands for, through the frozen head. Stage 2 (training-time
test, EAGLE-3, arXiv 2503.01840, section 3.2): the same losses on a few unrolled steps on the layer's own
outputs, which is what drafting does.

Deviations from the papers, all measured on this scale: cross-entropy weight 0.5 (`cross_entropy_weight=0.1`
for the paper's) over a candidate vocabulary; `fc` starts as the identity on the feature half; a feature loss
is kept in stage 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.eagle_head import EagleHead, EagleShape
from explorer.training.evaluate import Report, evaluate_eagle
from explorer.training.features import Sample
from explorer.training.loop import Loss
from explorer.training.losses import (
    candidate_rows,
    decayed_mean,
    feature_noise,
    feature_regression,
    soft_cross_entropy,
)
from explorer.training.monitor import Trainee
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared
from explorer.training.publish import eagle_config
from explorer.training.train import Plan, StagePlan, train
from explorer.training.unroll import reached, unroll

EPOCHS, UNROLL_EPOCHS = 3.0, 1.5
LEARNING_RATE = 1e-3
UNROLL_LEARNING_RATE_PART = 0.6


@dataclass(frozen=True)
class EagleBatch:
    """Padded slots of several samples. Slot t reads token t+1 and feature t and predicts feature t+1."""

    token_ids: Tensor  # (B, T)
    features: Tensor  # (B, T, h)
    targets: Tensor  # (B, T, h) features t+1
    answer: Tensor  # (B, T) bool: slots whose prediction stands for an answer token of the text

    def to(self, device: torch.device) -> EagleBatch:
        return EagleBatch(*(each.to(device) for each in (self.token_ids, self.features, self.targets, self.answer)))


def make_batch(samples: Sequence[Sample]) -> EagleBatch:
    """Slots of samples, padded on the right (no slot sees later ones, so padding needs no mask)."""
    longest = max(len(sample.example) for sample in samples) - 1
    hidden_size = samples[0].features.shape[-1]
    token_ids = torch.zeros(len(samples), longest, dtype=torch.long)
    features = torch.zeros(len(samples), longest + 1, hidden_size)
    answer = torch.zeros(len(samples), longest, dtype=torch.bool)
    for row, sample in enumerate(samples):
        length = len(sample.example)
        token_ids[row, : length - 1] = torch.tensor(sample.example.ids[1:])
        features[row, :length] = sample.features.float()
        # First drafting slot: the last prompt feature with the first answer token. The last one predicts
        # the feature whose next token is still part of the text.
        answer[row, sample.example.prompt_length - 1 : length - 2] = True
    return EagleBatch(token_ids, features[:, :-1], features[:, 1:], answer)


@dataclass(frozen=True)
class EagleLoss:
    """Weighted loss of all unrolled steps on one batch."""

    regression_weight: float = 1.0
    cross_entropy_weight: float = 0.5
    noise: float = 0.1
    """The paper's half width for sequences of 512 tokens: (U - 0.5) * 0.2."""
    step_decay: float = 0.8
    full: bool = False

    def __call__(self, head: EagleHead, batch: EagleBatch, steps: int, generator: torch.Generator) -> Tensor:
        """The loss of `steps` unrolled steps; 1 is plain EAGLE-1 training."""
        assert head.output_weight is not None
        outputs = unroll(head, batch.token_ids, feature_noise(batch.features, generator, self.noise), steps)
        if not bool(batch.answer.any()):
            return torch.stack([parameter.sum() * 0.0 for parameter in head.parameters()]).sum()
        with torch.no_grad():
            flat_targets = batch.targets[batch.answer]  # (N, h)
            target_logits = F.linear(flat_targets, head.output_weight)
            rows = candidate_rows(target_logits, generator, full=self.full)
            target_logits = target_logits[:, rows]
        output_rows = head.output_weight[rows]
        losses = []
        for step, output in enumerate(outputs):
            deep = reached(batch.answer, step)
            if not bool(deep.any()):
                break  # the answers of this batch are shorter than the rollout
            kept, predicted = deep[batch.answer], output[deep]
            regression = feature_regression(predicted, flat_targets[kept])
            entropy = soft_cross_entropy(F.linear(predicted, output_rows), target_logits[kept])
            losses.append(self.regression_weight * regression + self.cross_entropy_weight * entropy)
        return decayed_mean(losses, self.step_decay)


def new_eagle(shape: EagleShape, seed: int, *, token_map: Tensor | None) -> EagleHead:
    """A seeded head whose `fc` passes the feature half through, so that it starts near 'nothing changed'."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = EagleHead(shape, token_map=token_map)
        for parameter in head.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
        with torch.no_grad():
            head.fc.weight[:, shape.hidden_size :] = torch.eye(shape.hidden_size)
            if shape.fc_bias:
                head.fc.bias.zero_()
    return head


def train_eagle(options: TrainOptions) -> Report:
    """Train a head for the target in `options.model`, write it to `options.out`, report held-out figures."""
    return train(options.with_defaults(epochs=EPOCHS, unroll_epochs=UNROLL_EPOCHS, learning_rate=LEARNING_RATE), _plan)


def _plan(prepared: Prepared, options: TrainOptions) -> Plan:
    sizes = prepared.target.sizes
    shape = EagleShape(
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        rms_norm_eps=sizes.rms_norm_eps,
    )
    head = new_eagle(shape, options.seed, token_map=prepared.token_map).to(prepared.device)
    head.bind(prepared.embed_rows(), prepared.output_rows())
    loss = EagleLoss(
        options.regression_weight, options.cross_entropy_weight, options.noise, options.step_decay, options.full_loss
    )

    def unrolled(steps: int) -> Loss:
        def batch_loss(indices: Sequence[int], generator: torch.Generator) -> Tensor:
            batch = make_batch([prepared.train[index] for index in indices])
            return loss(head, batch.to(prepared.device), steps, generator)

        return batch_loss

    trainee = Trainee(
        title="EAGLE head",
        export=head.export,
        config=lambda report: eagle_config(head),
        evaluate=lambda limit: evaluate_eagle(head, prepared.held_out, limit=limit),
    )
    stages = [StagePlan("eagle-stage-1", options.passes, options.rate, options.seed, unrolled(1))]
    if options.unroll_epochs:
        rate = options.rate * UNROLL_LEARNING_RATE_PART
        second = unrolled(options.unroll_steps)
        stages.append(StagePlan("eagle-stage-2", options.unroll_epochs, rate, options.seed + 1, second))
    return Plan(head, trainee, stages)
