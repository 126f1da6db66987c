"""One way through a training run for all drafters: prepare, stages, held-out figures, publication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from accelerate.utils import broadcast_object_list
from torch import nn

from explorer.training.evaluate import Report
from explorer.training.loop import Loss, Objective, Stage, run_stage
from explorer.training.monitor import Monitor, Trainee
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared, prepare
from explorer.training.publish import Clock, common_config, publish


@dataclass(frozen=True)
class StagePlan:
    """One stage of a recipe."""

    name: str
    epochs: float
    learning_rate: float
    seed: int
    loss: Loss


@dataclass(frozen=True)
class Plan:
    """A drafter and the stages that train it."""

    drafter: nn.Module
    trainee: Trainee
    stages: Sequence[StagePlan]


Build = Callable[[Prepared, TrainOptions], Plan]


def train(options: TrainOptions, build: Build, *, with_taps: bool = False) -> Report:
    """Run all stages, then write the drafter to `options.out`; `options` have their defaults filled in."""
    clock = Clock()
    with clock.part("features"):
        prepared = prepare(options, with_taps=with_taps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        plan = build(prepared, options)
    workers = prepared.workers
    monitor = Monitor(
        options.work_folder,
        plan.trainee,
        lambda report, tokens: common_config(prepared, options, report, clock, tokens),
    )
    tokens = 0
    for stage in plan.stages:
        monitor.begin(stage.name, tokens)
        done = run_stage(Objective(plan.drafter, stage.loss), _stage(stage, prepared, options), workers, watch=monitor)
        tokens += done.tokens
        clock.seconds[stage.name] = done.seconds
    return _finish(plan.trainee, prepared, options, monitor, clock, tokens)


def _stage(plan: StagePlan, prepared: Prepared, options: TrainOptions) -> Stage:
    return Stage(
        name=plan.name,
        lengths=prepared.lengths,
        epochs=plan.epochs,
        batch_tokens=options.batch_tokens,
        learning_rate=plan.learning_rate,
        seed=plan.seed,
        save_every=options.save_every,
        state_path=options.work_folder / f"{plan.name}.pt",
        fingerprint=f"{prepared.fingerprint}-{plan.name}",
        warm_up_steps=options.warm_up_steps,
    )


def _finish(
    trainee: Trainee, prepared: Prepared, options: TrainOptions, monitor: Monitor, clock: Clock, tokens: int
) -> Report:
    """The main process judges and writes; the others hear the figures."""
    reports: list[Report | None] = [None]
    if prepared.workers.is_main_process:
        report = trainee.evaluate(None)
        config = {**trainee.config(report), **common_config(prepared, options, report, clock, tokens)}
        publish(options.out, trainee, report, config, monitor.points)
        reports = [report]
    if prepared.workers.num_processes > 1:
        broadcast_object_list(reports)
        prepared.workers.wait_for_everyone()
        # A process that leaves with the group's threads alive aborts now and then, its work done.
        prepared.workers.end_training()
    assert reports[0] is not None
    return reports[0]
