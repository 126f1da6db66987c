"""The training loop that all drafters share, on accelerate: one process or many, saved state, exact resume.

A step is a group of batches. Each process takes every n-th of them and gradients are averaged, so two
processes do what one does with twice the gradient accumulation. All randomness of batch b of step n comes
from (seed, n, b): neither a kill nor the number of processes changes what a step sees.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor, nn
from tqdm import tqdm

from explorer.errors import ExplorerError
from explorer.training.plan import learning_rate_factor, mark_steps, plan_steps
from explorer.training.state import Progress, restore_state, save_state

Loss = Callable[[Sequence[int], torch.Generator], Tensor]
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
GRADIENT_NORM = 1.0


class Objective(nn.Module):
    """A drafter with its loss as `forward`: what accelerate wraps must be what computes the loss."""

    def __init__(self, drafter: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.drafter = drafter
        self._loss = loss

    def forward(self, indices: Sequence[int], seed: int) -> Tensor:
        """The loss of one batch of sample indices; `seed` is the source of its randomness."""
        return self._loss(indices, torch.Generator().manual_seed(seed))


class Watch(Protocol):
    """Who looks on while a stage runs; only in the main process."""

    def mark(self, tokens: int) -> None:
        """The drafter has seen so many training tokens of this stage: keep a checkpoint."""

    def losses(self, values: Sequence[float]) -> None:
        """All losses so far; called whenever the state was saved."""


@dataclass(frozen=True)
class Stage:
    """One run of the loop over batches of sample indices."""

    name: str
    lengths: Sequence[int]  # tokens of each sample
    epochs: float
    batch_tokens: int
    learning_rate: float
    seed: int
    save_every: int
    state_path: Path
    fingerprint: str  # what the saved state belongs to; another one is refused
    warm_up_steps: int = 30


@dataclass(frozen=True)
class StageResult:
    """What a stage did."""

    steps: int
    losses: list[float]  # one per step
    tokens: int  # training tokens, prompts included
    seconds: float = field(compare=False)  # of all runs that the saved state went through


def start_workers(*, mixed_precision: str = "bf16", accumulate: int = 1, device: str = "cpu") -> Accelerator:
    """The processes of this run: one, or what `accelerate launch` started. `accumulate` is per process."""
    # A second training in one process may ask for another precision, which the shared state would refuse.
    AcceleratorState._reset_state()
    try:
        workers = Accelerator(
            cpu=device == "cpu",
            mixed_precision=mixed_precision,
            gradient_accumulation_steps=accumulate,
            # Buffers are the target's matrices, the same everywhere: sending them at each step would cost most.
            kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
        )
    except (ValueError, RuntimeError) as error:
        raise ExplorerError(f"Training cannot start with mixed precision {mixed_precision}: {error}") from error
    if mixed_precision == "fp16" and workers.device.type == "cpu":
        # accelerate would take it, and compute in float32 without a word.
        raise ExplorerError("Training in mixed precision fp16 needs a CUDA device; use bf16 or no.")
    return workers


def run_stage(
    objective: Objective,
    stage: Stage,
    workers: Accelerator,
    *,
    watch: Watch | None = None,
    stop_after: int | None = None,
) -> StageResult:
    """Train in place. A saved state is taken up; `stop_after` steps ends early (for tests)."""
    group = workers.gradient_accumulation_steps * workers.num_processes
    plan = plan_steps(stage.lengths, epochs=stage.epochs, batch_tokens=stage.batch_tokens, seed=stage.seed, group=group)
    parameters = [value for value in objective.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=stage.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
    fingerprint = f"{stage.fingerprint}-{group}-{workers.mixed_precision}"
    progress, scaler = restore_state(stage.state_path, objective.drafter, optimizer, fingerprint=fingerprint)
    run = _Run(objective, optimizer, workers, stage, plan, progress, fingerprint, watch)
    if scaler is not None and workers.scaler is not None:
        workers.scaler.load_state_dict(scaler)
    run.go(len(plan) if stop_after is None else min(len(plan), stop_after))
    done = len(progress.losses)
    return StageResult(done, progress.losses, run.tokens[done], progress.seconds)


class _Run:
    """A stage under way."""

    def __init__(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        workers: Accelerator,
        stage: Stage,
        plan: list[list[list[int]]],
        progress: Progress,
        fingerprint: str,
        watch: Watch | None,
    ) -> None:
        self._drafter, self._workers, self._stage = objective.drafter, workers, stage
        self._plan, self._progress, self._fingerprint = plan, progress, fingerprint
        self._watch = watch if workers.is_main_process else None
        self._model: Any
        self._optimizer: Any
        self._model, self._optimizer = workers.prepare(objective, optimizer)
        self.tokens = [0]
        """Training tokens after so many steps."""
        for step in plan:
            self.tokens.append(self.tokens[-1] + sum(stage.lengths[index] for batch in step for index in batch))

    def go(self, end: int) -> None:
        """All steps up to `end`."""
        stage, losses = self._stage, self._progress.losses
        marks, begun = set(mark_steps(len(self._plan))), time.monotonic() - self._progress.seconds
        shown = tqdm(
            total=len(self._plan),
            initial=len(losses),
            desc=stage.name,
            unit="step",
            mininterval=5,
            disable=not self._workers.is_main_process,
        )
        with shown:
            for step in range(len(losses), end):
                losses.append(self._step(step))
                self._progress.seconds = time.monotonic() - begun
                shown.update()
                if step % 20 == 0:
                    shown.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.4f}")
                # The mark comes first: a run killed in between sets it again, it never lacks one.
                if self._watch is not None and step + 1 in marks:
                    self._watch.mark(self.tokens[step + 1])
                if (step + 1) % stage.save_every == 0 or step + 1 == end:
                    self._save()

    def _step(self, step: int) -> float:
        """One update; the loss, averaged over the step's batches. Nothing changes where it is not finite."""
        workers, stage, group = self._workers, self._stage, self._plan[step]
        factor = learning_rate_factor(step, len(self._plan), stage.warm_up_steps)
        for settings in self._optimizer.param_groups:
            settings["lr"] = stage.learning_rate * factor
        total = torch.zeros((), device=workers.device)
        for place in range(workers.process_index, len(group), workers.num_processes):
            seed = (stage.seed * 1_000_003 + step) * len(group) + place
            with workers.accumulate(self._model):
                loss = self._model(group[place], seed)
                workers.backward(loss)  # divides by the accumulation steps
                total += loss.detach()
        norm = workers.clip_grad_norm_(self._model.parameters(), GRADIENT_NORM)
        value = float(workers.reduce(total, reduction="sum")) / len(group)
        # fp16 skips a step whose scaled gradient overflows; elsewhere that is the end.
        if not math.isfinite(value) or (workers.scaler is None and not math.isfinite(float(norm or 0.0))):
            raise ExplorerError(self._not_finite(step))
        self._optimizer.step()
        self._optimizer.zero_grad()
        return value

    def _not_finite(self, step: int) -> str:
        every = self._stage.save_every
        kept = (
            f"the state of step {step // every * every} is kept in {self._stage.state_path}"
            if self._stage.state_path.exists()
            else "no state was saved yet"
        )
        return f"The loss of {self._stage.name} is not finite at step {step}; use a lower learning rate ({kept})."

    def _save(self) -> None:
        if not self._workers.is_main_process:
            return
        scaler = self._workers.scaler
        save_state(
            self._stage.state_path,
            self._drafter,
            self._optimizer.optimizer,
            self._progress,
            fingerprint=self._fingerprint,
            scaler=None if scaler is None else scaler.state_dict(),
        )
        if self._watch is not None:
            self._watch.losses(self._progress.losses)
