"""The loop: schedule, batches, exact resume."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from explorer.errors import ExplorerError
from explorer.training.loop import Stage, epoch_batches, learning_rate_factor, run_stage

LENGTHS = [5 + n % 7 for n in range(40)]


@pytest.fixture
def stage(tmp_path):
    return Stage("test", LENGTHS, 3.5, 40, 1e-2, 7, 5, tmp_path / "state.pt", "same")


def fresh():
    torch.manual_seed(3)
    return nn.Linear(4, 4)


def loss_of(module):
    def loss(indices, generator):
        x = torch.randn(len(indices), 4, generator=generator) + sum(indices) / 100
        return (module(x) - x.flip(-1)).square().mean()

    return loss


def train(stage, stop_after=None):
    module = fresh()
    return module, run_stage(module, loss_of(module), stage, stop_after=stop_after)


def test_an_interrupted_run_equals_an_uninterrupted_one(stage, tmp_path):
    whole, result = train(stage)
    assert result.steps > 20
    interrupted = replace(stage, state_path=tmp_path / "other.pt")
    for stop in (7, 13):
        train(interrupted, stop_after=stop)
    before = torch.load(interrupted.state_path, weights_only=True)["seconds"]
    resumed, again = train(interrupted)
    assert again == result
    assert again.seconds >= before > 0  # the cost of all runs together
    assert torch.equal(resumed.weight, whole.weight)
    assert torch.equal(resumed.bias, whole.bias)


def test_a_finished_run_is_not_trained_further(stage):
    module, result = train(stage)
    weight = module.weight.detach().clone()
    again, repeated = train(stage)
    assert repeated == result
    assert torch.equal(again.weight, weight)


def test_a_state_of_another_run_or_a_damaged_one_is_refused(stage):
    train(stage, stop_after=5)
    with pytest.raises(ExplorerError, match="belongs to other data or options"):
        train(replace(stage, fingerprint="other"))
    stage.state_path.write_bytes(stage.state_path.read_bytes()[:100])
    with pytest.raises(ExplorerError, match="is damaged"):
        train(stage)


def test_a_loss_that_is_not_finite_stops_the_run(stage):
    module = fresh()
    with pytest.raises(ExplorerError, match="not finite at step 0"):
        run_stage(module, lambda indices, generator: module.weight.sum() * float("nan"), stage)


def test_an_epoch_sees_every_sample_once_and_its_order_depends_on_seed_and_epoch():
    batches = epoch_batches(LENGTHS, 40, seed=1, epoch=0)
    assert sorted(index for batch in batches for index in batch) == list(range(40))
    assert all(len(batch) * max(LENGTHS[i] for i in batch) <= 40 for batch in batches)
    assert batches == epoch_batches(LENGTHS, 40, seed=1, epoch=0)
    assert batches != epoch_batches(LENGTHS, 40, seed=1, epoch=1)
    assert batches != epoch_batches(LENGTHS, 40, seed=2, epoch=0)


def test_the_learning_rate_rises_stays_and_falls():
    factors = [learning_rate_factor(step, 1000) for step in range(1000)]
    assert factors[0] < factors[15] < factors[29] == 1.0
    assert factors[300] == 1.0
    assert all(later <= earlier for earlier, later in pairwise(factors[300:]))
    assert 0.05 <= factors[-1] < 0.06
