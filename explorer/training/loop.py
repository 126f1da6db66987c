"""The training loop that both drafters share: schedule, saved state, exact resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from explorer.errors import ExplorerError

Loss = Callable[[Sequence[int], torch.Generator], Tensor]
BETAS = (0.9, 0.95)
WARM_UP_STEPS = 30
CONSTANT_PART = 0.3
GRADIENT_NORM = 1.0


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


@dataclass(frozen=True)
class StageResult:
    """What a stage did."""

    steps: int
    losses: list[float]  # one per step
    seconds: float = field(compare=False)  # of all runs that the saved state went through


def learning_rate_factor(step: int, total: int) -> float:
    """Linear warm-up, constant, then cosine decay to a twentieth over the last 70 %."""
    warm = min(1.0, (step + 1) / min(WARM_UP_STEPS, max(1, total // 4)))
    progress = (step / max(1, total) - CONSTANT_PART) / (1 - CONSTANT_PART)
    decay = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))
    return warm * decay


def epoch_batches(lengths: Sequence[int], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """A seeded order of all samples in batches of similar length, `rows * longest` near `batch_tokens`."""
    generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    batches: list[list[int]] = []
    window = 128  # sorted by length inside a window only, so that batches differ between epochs
    for start in range(0, len(order), window):
        batch: list[int] = []
        for index in sorted(order[start : start + window], key=lambda i: lengths[i]):
            if batch and (len(batch) + 1) * lengths[index] > batch_tokens:
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def run_stage(module: nn.Module, loss: Loss, stage: Stage, *, stop_after: int | None = None) -> StageResult:
    """Train `module` in place. A saved state is taken up; `stop_after` steps ends early (for tests).

    All randomness of step n comes from (seed, n), so a resumed run equals an uninterrupted one.
    """
    plan = _plan(stage)
    optimizer = torch.optim.AdamW(module.parameters(), lr=stage.learning_rate, betas=BETAS, weight_decay=0.01)
    losses, earlier = _restore(module, optimizer, stage)
    first, begun = len(losses), time.monotonic() - earlier
    end = len(plan) if stop_after is None else min(len(plan), stop_after)
    with tqdm(total=len(plan), initial=first, desc=stage.name, unit="step", mininterval=5) as progress:
        for step in range(first, end):
            for group in optimizer.param_groups:
                group["lr"] = stage.learning_rate * learning_rate_factor(step, len(plan))
            value = loss(plan[step], torch.Generator().manual_seed(stage.seed * 1_000_003 + step))
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            nn.utils.clip_grad_norm_(module.parameters(), GRADIENT_NORM)
            optimizer.step()
            losses.append(value.item())
            if not math.isfinite(losses[-1]):
                raise ExplorerError(
                    f"The loss of {stage.name} is not finite at step {step}; use a lower learning rate."
                )
            progress.update()
            if step % 20 == 0:
                progress.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.4f}")
            if (step + 1) % stage.save_every == 0 or step + 1 == end:
                _save(module, optimizer, stage, losses, time.monotonic() - begun)
    return StageResult(len(losses), losses, time.monotonic() - begun)


def _plan(stage: Stage) -> list[list[int]]:
    """Batches of all epochs; a fractional last epoch is cut."""
    plan: list[list[int]] = []
    for epoch in range(math.ceil(stage.epochs)):
        batches = epoch_batches(stage.lengths, stage.batch_tokens, stage.seed, epoch)
        part = min(1.0, stage.epochs - epoch)
        plan += batches[: max(1, round(len(batches) * part))]
    return plan


def _save(
    module: nn.Module, optimizer: torch.optim.Optimizer, stage: Stage, losses: list[float], seconds: float
) -> None:
    state = {
        "fingerprint": stage.fingerprint,
        "module": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "losses": losses,
        "seconds": seconds,
    }
    stage.state_path.parent.mkdir(parents=True, exist_ok=True)
    temporary = stage.state_path.with_name(stage.state_path.name + ".tmp")
    torch.save(state, temporary)
    temporary.replace(stage.state_path)


def _restore(module: nn.Module, optimizer: torch.optim.Optimizer, stage: Stage) -> tuple[list[float], float]:
    """Load a saved state if there is one; returns the losses and the seconds so far."""
    if not stage.state_path.exists():
        return [], 0.0
    try:
        state = torch.load(stage.state_path, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise ExplorerError(f"The training state {stage.state_path} is damaged; delete it to start again.") from error
    if state["fingerprint"] != stage.fingerprint:
        raise ExplorerError(
            f"The training state {stage.state_path} belongs to other data or options; delete it to start again."
        )
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    return list(state["losses"]), float(state["seconds"])
