"""From a row of logits to the target's own token: argmax, or a seeded draw from the processed distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from explorer.trace import NextToken, Origin


class SamplingSettings(BaseModel):
    """How the target chooses. Temperature 0 is greedy; the rest then has no effect."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    temperature: float = Field(0.0, ge=0.0, le=5.0, description="0 is greedy; higher is more random.")
    top_k: int = Field(0, ge=0, le=1000, description="Keep the k most probable tokens; 0 keeps all.")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="Keep the smallest set with this total probability.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same seed, same trace.")


@dataclass(frozen=True)
class Choice:
    """A token that the target chose, and how sure it was."""

    token_id: int
    origin: Origin
    probability: float
    margin: float
    """Best minus second-best logit, before any processing."""

    def record(self, text: str) -> NextToken:
        """As it goes into the trace."""
        return NextToken(
            token_id=self.token_id,
            text=text,
            origin=self.origin,
            probability=min(self.probability, 1.0),
            margin=self.margin,
        )


class Chooser:
    """Chooses tokens for one lane. Holds the lane's own random generator: no lane disturbs another."""

    def __init__(self, settings: SamplingSettings) -> None:
        self.settings = settings
        self._generator = torch.Generator().manual_seed(settings.seed)
        self._processors = _processors(settings)

    @property
    def greedy(self) -> bool:
        """Argmax, no draw."""
        return self.settings.temperature == 0.0

    def distribution(self, row: Tensor, history: Sequence[int]) -> Tensor:
        """(V,) float32 target_probs of a row (V,) of logits, by transformers' processors in `generate`'s order."""
        scores = row.float().unsqueeze(0)  # (1, V)
        if not self.greedy:
            # Any: transformers' annotation names a tensor class that nobody makes
            token_ids: Any = torch.tensor([list(history)], device=row.device)
            scores = self._processors(token_ids, scores)
        return torch.softmax(scores, dim=-1)[0]

    def choose(self, row: Tensor, history: Sequence[int]) -> Choice:
        """The target's token after `history`, from its row (V,) of logits."""
        best = torch.topk(row.float(), 2)
        margin = float(best.values[0] - best.values[1])
        if self.greedy:
            token_id = int(row.argmax())  # as `generate` breaks ties: the first of the best
            probability = torch.exp(best.values[0] - torch.logsumexp(row.float(), dim=-1))
            return Choice(token_id, "argmax", float(probability), margin)
        target_probs = self.distribution(row, history)
        token_id = int(torch.multinomial(target_probs.cpu(), 1, generator=self._generator))
        return Choice(token_id, "sample", float(target_probs[token_id]), margin)


def _processors(settings: SamplingSettings) -> LogitsProcessorList:
    chain = LogitsProcessorList()
    if settings.temperature not in (0.0, 1.0):
        chain.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k:
        chain.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1.0:
        chain.append(TopPLogitsWarper(settings.top_p))
    return chain
