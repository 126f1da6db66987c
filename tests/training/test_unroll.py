"""Training-time test must be what drafting does: the same outputs as rollouts with the cache."""

import pytest
import torch

from explorer.drafters.eagle_head import EagleHead, EagleShape
from explorer.training.unroll import unroll

SLOTS, STEPS = 9, 4


@pytest.fixture
def head():
    torch.manual_seed(1)
    head = EagleHead(EagleShape(32, 40, num_heads=4, num_kv_heads=2, head_dim=8))
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    head.bind(torch.randn(20, 32), torch.randn(20, 32))
    return head.eval().requires_grad_(False)


def test_unrolled_steps_equal_rollouts_from_every_slot(head):
    tokens, features = torch.randint(20, (2, SLOTS)), torch.randn(2, SLOTS, 32)
    outputs = unroll(head, tokens, features, STEPS)
    for row in range(2):
        for true_slots in range(1, SLOTS + 1):
            cache = head.new_cache(SLOTS + STEPS)
            slots = slice(0, true_slots)
            predicted = head(tokens[row, slots], features[row, slots], torch.arange(true_slots), cache)
            torch.testing.assert_close(outputs[0][row, :true_slots], predicted, atol=1e-3, rtol=1e-3)
            # Each further guess feeds on the last output; it stands one slot later and one step deeper.
            for step in range(1, min(STEPS, SLOTS - true_slots + 1)):
                slot = true_slots - 1 + step
                predicted = head(tokens[row, slot : slot + 1], predicted[-1:], torch.tensor([slot]), cache)
                torch.testing.assert_close(outputs[step][row, slot], predicted[0], atol=1e-3, rtol=1e-3)


def test_padding_on_the_right_changes_nothing(head):
    tokens, features = torch.randint(20, (1, SLOTS)), torch.randn(1, SLOTS, 32)
    longer = torch.cat((tokens, torch.zeros(1, 3, dtype=torch.long)), dim=1)
    padded = torch.cat((features, torch.full((1, 3, 32), 7.0)), dim=1)
    for short, long in zip(unroll(head, tokens, features, STEPS), unroll(head, longer, padded, STEPS), strict=True):
        torch.testing.assert_close(long[:, :SLOTS], short, atol=1e-3, rtol=1e-3)
