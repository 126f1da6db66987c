"""Training of the EAGLE-3 layer (arXiv 2503.01840, section 3).

Training-time test from the start: a few unrolled steps on the layer's own outputs, soft cross-entropy against
the target's distribution over the draft vocabulary, no feature loss. Slots whose next token is outside the
draft vocabulary do not count.

Deviations from the paper: passes of single steps may come before the unrolled ones (`warm_epochs`; they cost a
third); three steps instead of seven (`unroll_steps`); the loss looks at a candidate
vocabulary (`full_loss=true` for all of it); "next token" is the text's, not the target's first choice, so
sampled answers differ a little; nothing starts from noise where the target has something to start from (`fc`
passes the highest tap through, the output matrix is the target's rows, the last norm is the target's; a layer
copied from the target learned slower than noise). The draft layer has as many key/value heads as query heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.eagle3_head import Eagle3Head, Eagle3Shape
from explorer.errors import ExplorerError
from explorer.training.evaluate import Report, evaluate_eagle3
from explorer.training.features import Sample
from explorer.training.loop import Loss
from explorer.training.losses import candidate_rows, decayed_mean, soft_cross_entropy
from explorer.training.monitor import Trainee
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared
from explorer.training.publish import eagle3_config
from explorer.training.target import FrozenTarget
from explorer.training.train import Plan, StagePlan, train
from explorer.training.unroll import reached, unroll

EPOCHS = 3.0
LEARNING_RATE = 1e-3
UNROLL_LEARNING_RATE_PART = 0.6
"""Of the training-time test where single steps came before it."""


@dataclass(frozen=True)
class Eagle3Batch:
    """Padded slots of several samples. Slot t reads token t+1 and the taps of t and predicts token t+2."""

    token_ids: Tensor  # (B, T)
    taps: Tensor  # (B, T, n * h)
    targets: Tensor  # (B, T, h) last features of t+1: what the target makes token t+2 from
    answer: Tensor  # (B, T) bool: slots whose prediction is an answer token inside the draft vocabulary

    def to(self, device: torch.device) -> Eagle3Batch:
        return Eagle3Batch(*(each.to(device) for each in (self.token_ids, self.taps, self.targets, self.answer)))


def make_batch(samples: Sequence[Sample], inside: Tensor) -> Eagle3Batch:
    """Slots of samples, padded on the right. inside (V,) bool: which tokens can be drafted."""
    longest = max(len(sample.example) for sample in samples) - 1
    first = samples[0]
    assert first.taps is not None, "EAGLE-3 needs samples with taps"
    token_ids = torch.zeros(len(samples), longest, dtype=torch.long)
    taps = torch.zeros(len(samples), longest, first.taps.shape[-1])
    targets = torch.zeros(len(samples), longest, first.features.shape[-1])
    answer = torch.zeros(len(samples), longest, dtype=torch.bool)
    for row, sample in enumerate(samples):
        length, ids = len(sample.example), torch.tensor(sample.example.ids)
        assert sample.taps is not None
        token_ids[row, : length - 1] = ids[1:]
        taps[row, : length - 1] = sample.taps[:-1].float()
        targets[row, : length - 1] = sample.features[1:].float()
        slots = slice(sample.example.prompt_length - 1, length - 2)
        answer[row, slots] = inside[ids[slots.start + 2 : slots.stop + 2]]
    return Eagle3Batch(token_ids, taps, targets, answer)


@dataclass(frozen=True)
class Eagle3Loss:
    """Weighted cross-entropy of all unrolled steps on one batch."""

    output_weight: Tensor
    """(D, h): the target's output matrix, rows of the draft vocabulary."""
    step_decay: float = 0.8
    full: bool = False

    def __call__(self, head: Eagle3Head, batch: Eagle3Batch, steps: int, generator: torch.Generator) -> Tensor:
        """The loss of `steps` unrolled steps; 0 where no slot of the batch counts."""
        outputs = unroll(head, batch.token_ids, head.fuse_features(batch.taps), steps)
        if not bool(batch.answer.any()):
            return torch.stack([parameter.sum() * 0.0 for parameter in head.parameters()]).sum()
        with torch.no_grad():
            target_logits = F.linear(batch.targets[batch.answer], self.output_weight)  # (N, D)
            rows = candidate_rows(target_logits, generator, full=self.full)
            target_logits = target_logits[:, rows]
        output_rows = head.lm_head.weight[rows]
        losses = []
        for step, output in enumerate(outputs):
            deep = reached(batch.answer, step)
            if not bool(deep.any()):
                break  # the answers of this batch are shorter than the rollout
            logits = F.linear(head.norm(output[deep]), output_rows)
            losses.append(soft_cross_entropy(logits, target_logits[deep[batch.answer]]))
        return decayed_mean(losses, self.step_decay)


def train_eagle3(options: TrainOptions) -> Report:
    """Train a head for the target in `options.model`, write it to `options.out`, report held-out figures."""
    return train(options.with_defaults(epochs=EPOCHS, learning_rate=LEARNING_RATE), _plan, with_taps=True)


def _plan(prepared: Prepared, options: TrainOptions) -> Plan:
    head = new_eagle3(prepared.target, prepared.token_map, prepared.taps, options.kv_heads).to(prepared.device)
    head.bind(prepared.embed_rows())
    output_weight, inside = prepared.output_rows(), torch.ones(prepared.target.vocab_size, dtype=torch.bool)
    if prepared.token_map is not None:
        output_weight = output_weight[prepared.token_map]
        inside = torch.zeros_like(inside).index_fill(0, prepared.token_map, True)
    loss = Eagle3Loss(output_weight, options.step_decay, options.full_loss)

    def unrolled(steps: int) -> Loss:
        def batch_loss(indices: Sequence[int], generator: torch.Generator) -> Tensor:
            batch = make_batch([prepared.train[index] for index in indices], inside)
            return loss(head, batch.to(prepared.device), steps, generator)

        return batch_loss

    trainee = Trainee(
        title="EAGLE-3 head",
        export=head.export,
        config=lambda report: eagle3_config(head),
        evaluate=lambda limit: evaluate_eagle3(head, prepared.held_out, limit=limit),
    )
    rate, stages = options.rate, []
    if options.warm_epochs:
        stages.append(StagePlan("eagle3-warm", options.warm_epochs, rate, options.seed, unrolled(1)))
        rate *= UNROLL_LEARNING_RATE_PART
    stages.append(StagePlan("eagle3", options.passes, rate, options.seed + 1, unrolled(options.unroll_steps)))
    return Plan(head, trainee, stages)


def new_eagle3(
    target: FrozenTarget, token_map: Tensor | None, taps: tuple[int, ...], kv_heads: int | None = None
) -> Eagle3Head:
    """A head that starts from the target where it can; draws from torch's generator elsewhere.

    The embedding reaches the output through the values alone, so these are not grouped unless asked for.
    """
    sizes = target.sizes
    kv_heads = kv_heads or sizes.num_heads
    if sizes.num_heads % kv_heads:
        raise ExplorerError(f"kv_heads: {kv_heads} does not divide the {sizes.num_heads} query heads.")
    shape = Eagle3Shape(
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_heads=sizes.num_heads,
        num_kv_heads=kv_heads,
        head_dim=sizes.head_dim,
        rms_norm_eps=sizes.rms_norm_eps,
        draft_vocab_size=target.vocab_size if token_map is None else len(token_map),
        taps=len(taps),
    )
    head = Eagle3Head(shape, token_map=token_map, aux_layers=taps)
    for parameter in head.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
    with torch.no_grad():
        head.fc.weight[:, -sizes.hidden_size :] += torch.eye(sizes.hidden_size)
        rows = target.output_weight.float().cpu()
        head.lm_head.weight.copy_(rows if token_map is None else rows[token_map])
        last_norm = getattr(target.model.base_model, "norm", None)
        if last_norm is not None and last_norm.weight.shape == head.norm.weight.shape:
            head.norm.weight.copy_(last_norm.weight)
    return head
