"""Which slot learns which target. Off by one here trains well and drafts badly."""

from dataclasses import replace

import pytest
import torch

from explorer.drafters.eagle_head import EagleHead, EagleShape
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.training import draft_model, eagle, eagle3, medusa
from explorer.training.evaluate import evaluate_eagle, evaluate_medusa

SIZE = 64


def successor(by):
    """Matrix that moves a one-hot vector `by` places up."""
    return torch.roll(torch.eye(SIZE), by, dims=0)


@pytest.fixture
def perfect_heads():
    """Heads that know that the text counts: feature t is one-hot at token t+1, head i adds i+1."""
    heads = MedusaHeads(3, SIZE)
    with torch.no_grad():
        for head in range(3):
            heads.weight[0, head] = 50 * successor(head + 1)
    heads.bind(torch.eye(SIZE))
    return heads


@pytest.fixture
def perfect_eagle():
    """Feature t+1 is one-hot at token t+2, the successor of the embedded token t+1; the layer adds nothing."""
    head = EagleHead(EagleShape(SIZE, 8, num_heads=4, num_kv_heads=2, head_dim=16))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.fc.weight[:, :SIZE] = successor(1)
    head.bind(torch.eye(SIZE), torch.eye(SIZE))
    return head


def test_medusa_labels(counting_samples):
    """Head i at position t (from the last prompt token on) learns the distribution of token t+2+i."""
    batch = medusa.make_batch(counting_samples, num_heads=3)
    token_now_known = batch.hidden.argmax(-1)  # token t+1
    expected_starts = [4, 9]
    assert token_now_known[0] == expected_starts[0]
    assert expected_starts[1] in token_now_known.tolist()
    for head in range(3):
        label = batch.later[batch.offsets + head].argmax(-1)
        assert torch.equal(label, token_now_known + 1 + head)
    # Every label is a token of the text: 16 and 14 tokens, ids up to 15 and 18.
    counts = [16 - 1 - 3 - 3, 14 - 1 - 3 - 3]
    assert len(batch.offsets) == sum(counts)
    assert batch.later[batch.offsets + 2].argmax(-1).max() == 18


def test_eagle_slots(counting_samples):
    """Slot t = (token t+1, feature t) -> feature t+1; answer slots start at the last prompt position."""
    batch = eagle.make_batch(counting_samples)
    first = batch.answer[0].nonzero().squeeze(-1).tolist()
    second = batch.answer[1].nonzero().squeeze(-1).tolist()
    assert first == list(range(3, 16 - 2))  # prompt of 4: slot 3 reads the first answer token
    assert second == list(range(3, 14 - 2))
    assert torch.equal(batch.token_ids[0], torch.arange(1, 16))
    assert torch.equal(batch.features[0].argmax(-1), batch.token_ids[0])
    assert torch.equal(batch.targets[batch.answer].argmax(-1), batch.token_ids[batch.answer] + 1)


def test_evaluation_gives_a_perfect_medusa_full_marks(perfect_heads, counting_samples):
    report = evaluate_medusa(perfect_heads, counting_samples)
    assert [row[0] for row in report.accuracies] == [1.0, 1.0, 1.0]
    assert report.chain_tokens == 4.0
    with torch.no_grad():
        perfect_heads.weight[0, 1] = 50 * successor(3)
    assert [row[0] for row in evaluate_medusa(perfect_heads, counting_samples).accuracies] == [1.0, 0.0, 1.0]


def test_evaluation_gives_a_perfect_eagle_full_marks(perfect_eagle, counting_samples):
    report = evaluate_eagle(perfect_eagle, counting_samples)
    assert report.top1 == [1.0] * 5
    assert report.chain_tokens == 6.0
    with torch.no_grad():
        perfect_eagle.fc.weight[:, :SIZE] = successor(2)
    assert evaluate_eagle(perfect_eagle, counting_samples).top1 == [0.0] * 5


def test_a_draft_vocabulary_is_translated_before_comparing(perfect_eagle, counting_samples):
    token_map = torch.arange(2, SIZE).flip(0)
    reduced = EagleHead(perfect_eagle.shape, token_map=token_map)
    reduced.load_state_dict(perfect_eagle.state_dict())
    reduced.bind(torch.eye(SIZE), torch.eye(SIZE))
    assert evaluate_eagle(reduced, counting_samples).top1 == [1.0] * 5


def test_losses_are_lowest_for_the_perfect_drafter(perfect_eagle, perfect_heads, counting_samples):
    batch = eagle.make_batch(counting_samples)
    eagle_loss = eagle.EagleLoss()
    right = eagle_loss(perfect_eagle, batch, 3, torch.Generator().manual_seed(0))
    flat = medusa.make_batch(counting_samples, num_heads=3)
    medusa_losses = [medusa.MedusaLoss(perfect_heads, torch.eye(SIZE), hard=hard) for hard in (False, True)]
    right_medusa = [loss(flat, torch.Generator().manual_seed(0)) for loss in medusa_losses]
    with torch.no_grad():
        perfect_eagle.fc.weight[:, :SIZE] = successor(2)
        perfect_heads.weight.copy_(torch.roll(perfect_heads.weight, 1, dims=2))
    assert right < eagle_loss(perfect_eagle, batch, 3, torch.Generator().manual_seed(0))
    for before, loss in zip(right_medusa, medusa_losses, strict=True):
        assert before < loss(flat, torch.Generator().manual_seed(0))


def test_answers_shorter_than_the_rollout_give_a_finite_loss(perfect_eagle, counting_samples):
    """Four answer tokens: slots for two guesses, none for a third."""
    short = [replace(each, example=replace(each.example, ids=each.example.ids[:8])) for each in counting_samples]
    short = [replace(each, features=each.features[:8]) for each in short]
    batch = eagle.make_batch(short)
    losses = [eagle.EagleLoss(noise=0.0)(perfect_eagle, batch, steps, torch.Generator()) for steps in (1, 3, 8)]
    assert all(torch.isfinite(loss) for loss in losses)
    nothing = replace(batch, answer=torch.zeros_like(batch.answer))
    assert eagle.EagleLoss()(perfect_eagle, nothing, 3, torch.Generator()).item() == 0.0


def test_eagle3_slots_and_draft_model_positions(counting_samples):
    """Both learn the token after next from slot t, respectively the next token from position t, in the answer only."""
    inside = torch.ones(SIZE, dtype=torch.bool)
    inside[9] = False
    tapped = [replace(each, taps=each.features.repeat(1, 3)) for each in counting_samples]
    batch = eagle3.make_batch(tapped, inside)
    assert torch.equal(batch.targets[batch.answer].argmax(-1), batch.token_ids[batch.answer] + 1)
    slots = batch.answer[0].nonzero().squeeze(-1).tolist()
    assert slots == [slot for slot in range(3, 16 - 2) if slot + 2 != 9]  # token 9 cannot be drafted
    draft = draft_model.make_batch(counting_samples)
    assert torch.equal(draft.targets.argmax(-1), draft.token_ids[draft.answer] + 1)
    assert draft.answer[0].nonzero().squeeze(-1).tolist() == list(range(3, 15))
