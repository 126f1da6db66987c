"""Which samples a step sees, and how fast it learns. Both depend on seed and step alone, never on the machine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

CONSTANT_PART = 0.3
LAST_FACTOR = 0.05
WINDOW_SAMPLES = 128
MARKS = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Parts of a stage after which a checkpoint is kept: dense at the start, where acceptance climbs fastest."""


def learning_rate_factor(step: int, total: int, warm_up: int) -> float:
    """Linear warm-up, constant, then cosine decay to a twentieth over the last 70 %."""
    warm = min(1.0, (step + 1) / max(1, min(warm_up, max(1, total // 4))))
    progress = (step / max(1, total) - CONSTANT_PART) / (1 - CONSTANT_PART)
    decay = LAST_FACTOR + (1 - LAST_FACTOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))
    return warm * decay


def epoch_batches(lengths: Sequence[int], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """A seeded order of all samples in batches of similar length, `rows * longest` near `batch_tokens`."""
    generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    batches: list[list[int]] = []
    for start in range(0, len(order), WINDOW_SAMPLES):
        batch: list[int] = []  # sorted by length inside a window only, so that batches differ between epochs
        for index in sorted(order[start : start + WINDOW_SAMPLES], key=lambda i: lengths[i]):
            if batch and (len(batch) + 1) * lengths[index] > batch_tokens:
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def plan_steps(
    lengths: Sequence[int], *, epochs: float, batch_tokens: int, seed: int, group: int
) -> list[list[list[int]]]:
    """Steps of `group` batches each, over all epochs; a fractional last epoch is cut.

    A step's batches are shared out among the processes, so the same group size gives the same steps on any
    number of them. Batches that fill no last group are left out.
    """
    batches: list[list[int]] = []
    for epoch in range(math.ceil(epochs)):
        found = epoch_batches(lengths, batch_tokens, seed, epoch)
        batches += found[: max(1, round(len(found) * min(1.0, epochs - epoch)))]
    steps = [batches[start : start + group] for start in range(0, len(batches) - group + 1, group)]
    # Fewer batches than one group: the step sees some of them twice rather than there being none.
    return steps or [[batches[place % len(batches)] for place in range(group)]]


def mark_steps(total: int) -> list[int]:
    """Numbers of steps after which a checkpoint is kept, ascending; the last is `total`."""
    return sorted({max(1, round(part * total)) for part in MARKS})
