"""The cheap loss: which columns it looks at, and its value."""

import torch

from explorer.training.losses import candidate_rows, feature_noise, soft_cross_entropy


def test_candidates_hold_every_position_best_tokens_once_and_in_order():
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(0))
    rows = candidate_rows(logits, torch.Generator().manual_seed(1), best=12, others=40)
    assert set(logits.topk(12, -1).indices.flatten().tolist()) <= set(rows.tolist())
    assert torch.equal(rows, rows.unique())
    assert len(rows) <= 6 * 12 + 40
    assert torch.equal(rows, candidate_rows(logits, torch.Generator().manual_seed(1), best=12, others=40))


def test_cross_entropy_is_smallest_at_the_target_and_equals_its_entropy_there():
    target = torch.randn(5, 30, generator=torch.Generator().manual_seed(0))
    entropy = torch.distributions.Categorical(logits=target).entropy().mean()
    torch.testing.assert_close(soft_cross_entropy(target + 3.0, target), entropy)
    assert soft_cross_entropy(target.roll(1, -1), target) > entropy


def test_noise_stays_within_its_width_and_repeats_with_its_seed():
    features = torch.zeros(100, 8)
    noisy = feature_noise(features, torch.Generator().manual_seed(2), 0.1)
    assert 0.05 < noisy.abs().max() <= 0.1
    assert torch.equal(noisy, feature_noise(features, torch.Generator().manual_seed(2), 0.1))
