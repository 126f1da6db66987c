"""The loop: schedule, batches, exact resume."""

import errno
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from explorer.errors import ExplorerError
from explorer.training.loop import Objective, Stage, run_stage, start_workers
from explorer.training.plan import epoch_batches, learning_rate_factor, mark_steps, plan_steps

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


def train(stage, stop_after=None, accumulate=1, watch=None):
    module = fresh()
    workers = start_workers(mixed_precision="no", accumulate=accumulate)
    objective = Objective(module, loss_of(module))
    return module, run_stage(objective, stage, workers, watch=watch, stop_after=stop_after)


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


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_state(stage):
    module, calls = fresh(), []

    def loss(indices, generator):
        calls.append(indices)
        return loss_of(module)(indices, generator) * (float("nan") if len(calls) == 13 else 1.0)

    with pytest.raises(ExplorerError, match=r"not finite at step 12; .*the state of step 10 is kept"):
        run_stage(Objective(module, loss), stage, start_workers(mixed_precision="no"))
    assert all(torch.isfinite(value).all() for value in module.parameters())  # the bad step changed nothing
    state = torch.load(stage.state_path, weights_only=True)
    assert len(state["losses"]) == 10
    resumed, result = train(stage)
    whole, again = train(replace(stage, state_path=stage.state_path.with_name("whole.pt")))
    assert torch.equal(resumed.weight, whole.weight)
    assert result == again


def test_a_full_disk_is_told_and_the_last_state_kept(stage, monkeypatch):
    train(stage, stop_after=5)
    before = stage.state_path.read_bytes()

    def half(path, data):
        path.open("wb").write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(ExplorerError, match=r"cannot be written to .*No space left.*the last one .* is kept"):
            train(stage)
    assert stage.state_path.read_bytes() == before
    assert [path.name for path in stage.state_path.parent.iterdir()] == ["state.pt"]
    assert train(stage)[1].steps > 20


def test_a_watcher_is_told_of_every_mark_and_all_losses(stage):
    class Watcher:
        def __init__(self):
            self.marks, self.values = [], []

        def mark(self, tokens):
            self.marks.append(tokens)

        def losses(self, values):
            self.values = list(values)

    watcher = Watcher()
    result = train(stage, watch=watcher)[1]
    assert watcher.values == result.losses
    assert len(watcher.marks) == len(mark_steps(result.steps)) >= 5
    assert watcher.marks == sorted(watcher.marks)
    assert watcher.marks[-1] == result.tokens
    assert 3 * sum(LENGTHS) < result.tokens < 4 * sum(LENGTHS)


def test_a_step_of_two_batches_is_the_mean_of_both(stage):
    """Two batches a step: what one process with accumulation does is what the sum of gradients says."""
    module = fresh()
    plan = plan_steps(LENGTHS, epochs=3.5, batch_tokens=40, seed=7, group=2)
    expected = [
        loss_of(module)(batch, torch.Generator().manual_seed((7 * 1_000_003) * 2 + place)).item()
        for place, batch in enumerate(plan[0])
    ]
    result = train(stage, stop_after=1, accumulate=2)[1]
    assert result.losses[0] == pytest.approx(sum(expected) / 2, rel=1e-6)


def test_steps_depend_on_the_group_alone_and_use_every_batch_once():
    single = plan_steps(LENGTHS, epochs=1, batch_tokens=40, seed=1, group=1)
    double = plan_steps(LENGTHS, epochs=1, batch_tokens=40, seed=1, group=2)
    flat = [batch for step in double for batch in step]
    assert flat == [batch for step in single for batch in step][: len(flat)]
    assert len(single) - len(flat) in (0, 1)
    assert plan_steps([5], epochs=1, batch_tokens=40, seed=1, group=3) == [[[0], [0], [0]]]


def test_an_epoch_sees_every_sample_once_and_its_order_depends_on_seed_and_epoch():
    batches = epoch_batches(LENGTHS, 40, seed=1, epoch=0)
    assert sorted(index for batch in batches for index in batch) == list(range(40))
    assert all(len(batch) * max(LENGTHS[i] for i in batch) <= 40 for batch in batches)
    assert batches == epoch_batches(LENGTHS, 40, seed=1, epoch=0)
    assert batches != epoch_batches(LENGTHS, 40, seed=1, epoch=1)
    assert batches != epoch_batches(LENGTHS, 40, seed=2, epoch=0)


def test_the_learning_rate_rises_stays_and_falls():
    factors = [learning_rate_factor(step, 1000, 30) for step in range(1000)]
    assert factors[0] < factors[15] < factors[29] == 1.0
    assert factors[300] == 1.0
    assert all(later <= earlier for earlier, later in pairwise(factors[300:]))
    assert 0.05 <= factors[-1] < 0.06
