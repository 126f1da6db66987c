"""Losses of the drafters: soft cross-entropy over a cheap candidate vocabulary, and feature regression."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TARGET_BEST = 12
RANDOM_OTHERS = 2000


def candidate_rows(
    target_logits: Tensor,
    generator: torch.Generator,
    best: int = TARGET_BEST,
    others: int = RANDOM_OTHERS,
    *,
    full: bool = False,
) -> Tensor:
    """Columns of (N, D) logits that a batch's loss looks at: (C,), ascending. `full`: all of them.

    The union of each position's `best` tokens, plus random others that stand for the long tail. The
    softmax over these few thousand columns costs a fraction of one over the vocabulary, and nearly all
    probability of the target lies on them.
    """
    size, device = target_logits.shape[-1], target_logits.device
    if full:
        return torch.arange(size, device=device)
    top = target_logits.topk(min(best, size), dim=-1).indices.flatten()
    extra = torch.randint(size, (others,), generator=generator).to(device)
    chosen = torch.zeros(size, dtype=torch.bool, device=device)
    chosen[top] = True
    chosen[extra] = True
    return chosen.nonzero().squeeze(-1)


def soft_cross_entropy(student_logits: Tensor, target_logits: Tensor) -> Tensor:
    """Mean over rows of -sum softmax(target) * log softmax(student); both (N, C)."""
    target_probs = target_logits.float().softmax(-1)
    return -(target_probs * F.log_softmax(student_logits.float(), -1)).sum(-1).mean()


def feature_regression(predicted: Tensor, true: Tensor) -> Tensor:
    """Smooth-L1 between features, mean over rows and channels (EAGLE-1, section 3.2)."""
    return F.smooth_l1_loss(predicted.float(), true.float())


def feature_noise(features: Tensor, generator: torch.Generator, half_width: float) -> Tensor:
    """Uniform noise in [-half_width, half_width]: drafting sees imperfect features, training should too."""
    noise = (torch.rand(features.shape, generator=generator) * 2 - 1) * half_width
    return features + noise.to(features.device)


def decayed_mean(losses: list[Tensor], decay: float) -> Tensor:
    """Weighted mean of the losses of unrolled steps or heads, each weight `decay` times the one before."""
    weights = [decay**place for place in range(len(losses))]
    return torch.stack([weight * loss for weight, loss in zip(weights, losses, strict=True)]).sum() / sum(weights)
