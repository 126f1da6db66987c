"""Held-out figures of drafters: how often a guess equals what the target went on to write.

Measured on held-out greedy answers (on all held-out ones if none is greedy), teacher-forced: the guesses at
a position are judged against the text that follows there. `chain_tokens` is the mean number of tokens per
target pass that drafting a single chain would have brought, the target's own token included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.drafters.eagle_head import EagleHead
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.training.features import Sample
from explorer.training.unroll import unroll

EAGLE_DEPTH = 5
RANKS = 10


@dataclass(frozen=True)
class EagleReport:
    """Accuracy by depth of the draft (0 = first guess)."""

    top1: list[float]
    top5: list[float]
    chain_tokens: float
    positions: int

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class MedusaReport:
    """`accuracies[head][rank]`: how often the head's rank-th token is the right one."""

    accuracies: list[list[float]]
    chain_tokens: float
    positions: int

    def facts(self) -> dict[str, Any]:
        return {"chain_tokens": self.chain_tokens, "positions": self.positions}


@torch.inference_mode()
def evaluate_eagle(head: EagleHead, held_out: Sequence[Sample]) -> EagleReport:
    """Rollouts of EAGLE_DEPTH guesses from every answer position that has enough text behind it."""
    ranks = [rows for sample in _greedy(held_out) if (rows := _eagle_ranks(head, sample)) is not None]
    table = torch.cat(ranks)  # (N, depth): rank of the right token, or a large number
    return EagleReport(
        top1=_share(table < 1),
        top5=_share(table < 5),
        chain_tokens=1 + _leading_run(table < 1),
        positions=len(table),
    )


def _eagle_ranks(head: EagleHead, sample: Sample) -> Tensor | None:
    """(starts, depth) ranks; row r starts at answer slot r, guess s comes from slot start + s at step s."""
    ids = torch.tensor(sample.example.ids)
    first = sample.example.prompt_length - 1
    starts = len(ids) - 2 - first - (EAGLE_DEPTH - 1)
    if starts <= 0:
        return None
    dtype = head.fc.weight.dtype
    outputs = unroll(head, ids[None, 1:], sample.features[None, :-1].to(dtype), EAGLE_DEPTH)
    columns = []
    for step, output in enumerate(outputs):
        begin = first + step
        logits = F.linear(output[0, begin : begin + starts], _output(head))
        columns.append(_rank(logits, ids[begin + 2 : begin + 2 + starts], head.token_map))
    return torch.stack(columns, dim=1)


@torch.inference_mode()
def evaluate_medusa(heads: MedusaHeads, held_out: Sequence[Sample]) -> MedusaReport:
    """Ranks of the tokens that followed, for every answer position that has enough text behind it."""
    ranks = [rows for sample in _greedy(held_out) if (rows := _medusa_ranks(heads, sample)) is not None]
    table = torch.cat(ranks)  # (N, K)
    by_rank = [[_mean(table[:, head] == rank) for rank in range(RANKS)] for head in range(heads.num_heads)]
    return MedusaReport(by_rank, 1 + _leading_run(table < 1), len(table))


def _medusa_ranks(heads: MedusaHeads, sample: Sample) -> Tensor | None:
    """(positions, K) ranks: head i at position t against token t+2+i."""
    ids = torch.tensor(sample.example.ids)
    first = sample.example.prompt_length - 1
    count = len(ids) - first - heads.num_heads - 1
    if count <= 0:
        return None
    logits = heads(sample.features[first : first + count].to(heads.weight.dtype))  # (K, count, D)
    columns = [
        _rank(logits[head], ids[first + 2 + head : first + 2 + head + count], heads.token_map)
        for head in range(heads.num_heads)
    ]
    return torch.stack(columns, dim=1)


def _greedy(held_out: Sequence[Sample]) -> Sequence[Sample]:
    greedy = [sample for sample in held_out if sample.example.temperature == 0]
    return greedy or held_out


def _output(head: EagleHead) -> Tensor:
    assert head.output_weight is not None
    return head.output_weight


def _rank(logits: Tensor, tokens: Tensor, token_map: Tensor | None) -> Tensor:
    """(N, D) logits and (N,) target ids -> (N,) rank among the first ten, `RANKS` if not among them."""
    best = logits.topk(min(RANKS, logits.shape[-1]), dim=-1).indices  # (N, 10)
    if token_map is not None:
        best = token_map[best]
    match = best == tokens[:, None]
    return torch.where(match.any(-1), match.int().argmax(-1), torch.tensor(RANKS))


def _share(right: Tensor) -> list[float]:
    return [_mean(right[:, column]) for column in range(right.shape[1])]


def _mean(values: Tensor) -> float:
    return round(float(values.float().mean()), 4)


def _leading_run(right: Tensor) -> float:
    """Mean number of right guesses before the first wrong one, along the rows of (N, depth)."""
    return round(float(right.long().cumprod(dim=1).sum(dim=1).float().mean()), 4)
