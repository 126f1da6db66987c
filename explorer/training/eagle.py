"""Training of the EAGLE layer.

Stage 1 (EAGLE-1, section 3.2): every slot on the true feature; smooth-L1 of the feature plus soft
cross-entropy of the token that it stands for. Stage 2 (training-time test, EAGLE-3, section 3.2): the same
losses on a few unrolled steps on the layer's own outputs, which is what drafting does.

Deviations from the papers, all measured on this scale: cross-entropy weight 0.5 (paper 0.1) over a candidate
vocabulary; `fc` starts as the identity on the feature half; a feature loss is kept in stage 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.eagle_head import EagleHead, EagleShape
from explorer.training.evaluate import EagleReport, evaluate_eagle
from explorer.training.features import Sample
from explorer.training.loop import Stage, StageResult, run_stage
from explorer.training.losses import candidate_rows, feature_noise, feature_regression, soft_cross_entropy
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared, prepare, training_rows
from explorer.training.publish import Clock, publish_eagle
from explorer.training.unroll import unroll

REGRESSION_WEIGHT = 1.0
CROSS_ENTROPY_WEIGHT = 0.5
STEP_DECAY = 0.8
# The paper's noise width for sequences of 512 tokens: (U - 0.5) * 0.2.
NOISE_HALF_WIDTH = 0.1
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


def eagle_loss(head: EagleHead, batch: EagleBatch, steps: int, generator: torch.Generator) -> Tensor:
    """Weighted loss of all unroll steps on one batch."""
    assert head.output_weight is not None
    noisy = feature_noise(batch.features, generator, NOISE_HALF_WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = unroll(head, batch.token_ids, noisy, steps)
        with torch.no_grad():
            flat_targets = batch.targets[batch.answer]  # (N, h)
            target_logits = F.linear(flat_targets, head.output_weight)
            rows = candidate_rows(target_logits, generator)
            target_logits = target_logits[:, rows]
        output_rows = head.output_weight[rows]
        total = torch.zeros(())
        for step, output in enumerate(outputs):
            # Slots nearer to the first answer slot than `step` would need a rollout from inside the prompt.
            deep = batch.answer.clone()
            deep[:, step:] &= batch.answer[:, : deep.shape[1] - step]
            deep[:, :step] = False
            predicted = output[deep]
            kept = deep[batch.answer]
            regression = feature_regression(predicted, flat_targets[kept])
            entropy = soft_cross_entropy(F.linear(predicted, output_rows), target_logits[kept])
            loss = REGRESSION_WEIGHT * regression + CROSS_ENTROPY_WEIGHT * entropy
            total = total + STEP_DECAY**step * loss
    return total / sum(STEP_DECAY**step for step in range(len(outputs)))


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


def train_eagle(options: TrainOptions) -> EagleReport:
    """Train a head for the target in `options.model`, write it to `options.out`, report held-out figures."""
    options = options.with_defaults(epochs=EPOCHS, unroll_epochs=UNROLL_EPOCHS, learning_rate=LEARNING_RATE)
    clock = Clock()
    with clock.part("features"):
        prepared = prepare(options)
    head = new_eagle(_shape_for(prepared), options.seed, token_map=prepared.token_map)
    head.bind(prepared.embed_weight.float(), prepared.output_weight.float())
    clock.seconds["stage 1"] = run_eagle_stage(head, prepared, options, unrolled=False).seconds
    report = evaluate_eagle(head, prepared.held_out)
    publish_eagle(head, prepared, options, report, clock)
    if options.unroll_epochs:
        clock.seconds["stage 2"] = run_eagle_stage(head, prepared, options, unrolled=True).seconds
        report = evaluate_eagle(head, prepared.held_out)
        publish_eagle(head, prepared, options, report, clock)
    return report


def run_eagle_stage(head: EagleHead, prepared: Prepared, options: TrainOptions, *, unrolled: bool) -> StageResult:
    """Stage 1 (`unrolled` false) or stage 2; `options` have their defaults filled in."""
    rate = options.learning_rate or LEARNING_RATE
    epochs = (options.unroll_epochs if unrolled else options.epochs) or 0.0
    steps = options.unroll_steps if unrolled else 1
    name = "eagle-stage-2" if unrolled else "eagle-stage-1"
    stage = Stage(
        name=name,
        lengths=training_rows(prepared),
        epochs=epochs,
        batch_tokens=options.batch_tokens,
        learning_rate=rate * (UNROLL_LEARNING_RATE_PART if unrolled else 1.0),
        seed=options.seed + int(unrolled),
        save_every=options.save_every,
        state_path=options.work_folder / f"{name}.pt",
        fingerprint=f"{prepared.fingerprint}-{epochs}-{steps}-{rate}-{options.batch_tokens}-{options.seed}",
    )

    def loss(indices: Sequence[int], generator: torch.Generator) -> Tensor:
        return eagle_loss(head, make_batch([prepared.train[i] for i in indices]), steps, generator)

    return run_stage(head, loss, stage)


def _shape_for(prepared: Prepared) -> EagleShape:
    """The draft layer has the sizes of one layer of the target."""
    config = prepared.target_config
    return EagleShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        rms_norm_eps=config.rms_norm_eps,
    )
