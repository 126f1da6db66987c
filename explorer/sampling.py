"""From a row of logits to the target's own token: argmax, or a seeded draw from the processed distribution."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from explorer.trace import NextToken, Origin


class SamplingSettings(BaseModel):
    """How the target chooses. At temperature 0 it is greedy: top_k, top_p and min_p have no effect then."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    temperature: float = Field(0.0, ge=0.0, le=5.0, description="0 is greedy; higher is more random.")
    top_k: int = Field(0, ge=0, le=1000, description="Keep the k most probable tokens; 0 keeps all.")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="Keep the smallest set with this total probability.")
    min_p: float = Field(
        0.0, ge=0.0, le=1.0, description="Keep tokens with at least this share of the best one's probability; 0: all."
    )
    repetition_penalty: float = Field(
        1.0, ge=0.1, le=10.0, description="Above 1 makes tokens that were there already less likely; also when greedy."
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same seed, same trace.")


@dataclass(frozen=True)
class Sure:
    """How sure a choice was."""

    probability: float
    margin: float
    """Best minus second-best logit, before any processing."""


@dataclass(frozen=True)
class Choice:
    """A token that the target chose, and how sure it was."""

    token_id: int
    origin: Origin
    sure: Sure | None = None
    """None for the best of a row as it is: only the record asks for it, and the record has the row's best anyway."""

    def record(self, text: str, best: Sure) -> NextToken:
        """As it goes into the trace. best: how sure the best token of the row is, unprocessed."""
        sure = self.sure or best
        return NextToken(
            token_id=self.token_id,
            text=text,
            origin=self.origin,
            probability=min(sure.probability, 1.0),
            margin=sure.margin,
        )


class Chooser:
    """Chooses tokens for one lane. Holds the lane's own random generator: no lane disturbs another.

    `stream` tells apart the generators of one lane: 0 is the target's, 1 the drafter's.
    """

    def __init__(self, settings: SamplingSettings, stream: int = 0) -> None:
        self.settings = settings
        self._generator = torch.Generator().manual_seed(_mixed(settings.seed, stream))
        self._processors = _processors(settings)

    @property
    def greedy(self) -> bool:
        """Argmax, no draw."""
        return self.settings.temperature == 0.0

    @property
    def plain(self) -> bool:
        """Greedy on the logits as they are: one argmax over all rows of a pass says it all."""
        return self.greedy and not self._processors

    def scores(self, row: Tensor, history: Sequence[int]) -> Tensor:
        """(V,) float32: a row (V,) of logits after transformers' processors, in `generate`'s order."""
        scores = row.float().unsqueeze(0)  # (1, V)
        if self._processors:
            # Any: transformers' annotation names a tensor class that nobody makes
            token_ids: Any = torch.tensor([list(history)], device=row.device)
            scores = self._processors(token_ids, scores)
        return scores[0]

    def distribution(self, row: Tensor, history: Sequence[int]) -> Tensor:
        """(V,) float32 target_probs of a row (V,) of logits. Greedy: before the argmax, so not one-hot."""
        return torch.softmax(self.scores(row, history), dim=-1)

    def choose(self, row: Tensor, history: Sequence[int], place: int | None = None) -> Choice:
        """The target's token after `history`, from its row (V,) of logits.

        `place` makes the draw a function of seed and place alone: asked twice, it answers the same.
        """
        if self.greedy:
            return self.best(row, history)
        target_probs = self.distribution(row, history)
        return self.chosen(target_probs, self.pick(target_probs, place), row, "sample")

    def best(self, row: Tensor, history: Sequence[int]) -> Choice:
        """The most likely token: as `generate` breaks ties, the first of the best."""
        scores = self.scores(row, history)
        token_id = int(scores.argmax())
        if self.plain:
            return Choice(token_id, "argmax")
        # not logsumexp: its exponentials of far-off logits are denormal, each of which costs a CPU a hundred steps
        probability = torch.log_softmax(scores, dim=-1)[token_id].exp()
        return Choice(token_id, "argmax", Sure(float(probability), margin(row)))

    def best_tokens(self, logits: Tensor) -> list[int] | None:
        """The best token of every row (T, V), in one transfer; None where rows have to be processed one by one."""
        # float: in bfloat16 an argmax takes five times as long on a CPU
        return logits.float().argmax(dim=-1).tolist() if self.plain else None

    def chosen(self, probs: Tensor, token_id: int, row: Tensor, origin: Origin) -> Choice:
        """A token that was drawn from `probs` (V,), as a choice."""
        return Choice(token_id, origin, Sure(float(probs[token_id]), margin(row)))

    def pick(self, probs: Tensor, place: int | None = None) -> int:
        """Draw a token from `probs` (V,)."""
        generator = self._generator
        if place is not None:
            generator = torch.Generator().manual_seed(_mixed(self.settings.seed, place, "place"))
        return int(torch.multinomial(probs.cpu(), 1, generator=generator))

    def pick_several(self, probs: Tensor, count: int) -> list[int]:
        """Draw up to `count` different tokens without replacement; fewer where fewer are possible."""
        possible = min(count, int((probs > 0).sum()))
        return torch.multinomial(probs.cpu(), possible, generator=self._generator).tolist()

    def coin(self, probability: float) -> tuple[bool, float]:
        """Accept with this probability: the verdict, and the uniform draw that made it."""
        draw = float(torch.rand((), generator=self._generator))
        return draw < probability, draw


def margin(row: Tensor) -> float:
    """Best minus second-best logit of a row (V,)."""
    best = torch.topk(row.float(), 2).values
    return float(best[0] - best[1])


def _mixed(seed: int, stream: int, kind: str = "stream") -> int:
    """A seed for one of a lane's generators; stream 0 is the seed itself."""
    return seed if kind == "stream" and stream == 0 else random.Random(f"{kind} {stream} of {seed}").getrandbits(48)


def _processors(settings: SamplingSettings) -> LogitsProcessorList:
    chain = LogitsProcessorList()
    if settings.repetition_penalty != 1.0:
        chain.append(RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
    if settings.temperature == 0.0:
        return chain
    if settings.temperature != 1.0:
        chain.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k:
        chain.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1.0:
        chain.append(TopPLogitsWarper(settings.top_p))
    if settings.min_p:
        chain.append(MinPLogitsWarper(settings.min_p))
    return chain
