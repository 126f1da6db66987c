"""How EAGLE's drafter grows a tree in one step: level by level, each node fed with its parent's predicted feature.

Three shapes: the dynamic tree of EAGLE-2, a static tree as in EAGLE-1, and its thin case, a chain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from explorer.methods.trees import RankPath
from explorer.sampling import Chooser

ROOT = -1
"""Stands for the root among the places of a pool."""


@dataclass
class Pool:
    """All drafted nodes of a step, level by level; places count through all levels."""

    tokens: list[int] = field(default_factory=list)
    """Target ids."""
    log_probs: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    """Cumulative log-probabilities."""
    parents: list[int] = field(default_factory=list)
    """Place of the parent, ROOT below the root."""
    ranks: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    """Place to row in `features`, for the root and the nodes that were drafted further."""
    features: list[Tensor] = field(default_factory=list)
    """Per level (k, h): the predicted features, the root's first."""
    draws: dict[int, Tensor] = field(default_factory=dict)
    """Per place whose children were drawn at random: the distribution (V,) that they came from."""

    def levels(self) -> list[list[float]]:
        """Scores as probabilities, per depth from 1."""
        levels: list[list[float]] = [[] for _ in range(max(self.depths, default=0))]
        for depth, score in zip(self.depths, self.scores, strict=True):
            levels[depth - 1].append(min(1.0, math.exp(score)))
        return levels

    def path(self, place: int) -> list[int]:
        """Token ids from just below the root to this place."""
        tokens = []
        while place != ROOT:
            tokens.append(self.tokens[place])
            place = self.parents[place]
        return tokens[::-1]


class Growth:
    """The frontier of one step: the slots run last, and what each may look at."""

    def __init__(self, drafter: Any, cache: Any, feature: Tensor) -> None:
        """feature (1, h): the prediction that proposes the first level, made from the last true slot."""
        self.pool = Pool(rows={ROOT: 0}, features=[feature])
        self.frontier = [ROOT]
        """Places whose features are known and whose children come next."""
        self.passes = 0
        self._drafter, self._cache, self._stable = drafter, cache, cache.length
        self._seen = torch.zeros(1, 0, dtype=torch.bool, device=feature.device)  # (F, draft slots)

    def log_probs(self) -> Tensor:
        """(F, D) after each frontier node, over the draft vocabulary."""
        log_probs: Tensor = self._drafter.log_probs(self.pool.features[-1])
        return log_probs

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Target ids of draft ids."""
        mapping = self._drafter.token_map
        return draft_ids if mapping is None else mapping[draft_ids]

    def spread(self, row: Tensor, vocabulary: int) -> Tensor:
        """(D,) log-probabilities to (V,) over the target's vocabulary; minus infinity where nothing can be drafted."""
        mapping = self._drafter.token_map
        whole = row.new_full((vocabulary,), float("-inf"))
        whole[slice(len(row)) if mapping is None else mapping] = row
        return whole

    def add(self, parents: list[int], tokens: list[int], log_probs: list[float], scores: list[float]) -> int:
        """Append a level, children of one parent side by side; returns the place of its first node."""
        pool, first = self.pool, len(self.pool.tokens)
        counts: Counter[int] = Counter()
        for parent in parents:
            pool.ranks.append(counts[parent])
            counts[parent] += 1
        depth = 1 + (0 if parents[0] == ROOT else pool.depths[parents[0]])
        pool.depths += [depth] * len(tokens)
        pool.parents += parents
        pool.tokens += tokens
        pool.log_probs += log_probs
        pool.scores += scores
        return first

    def descend(self, places: list[int], rows: Tensor, tokens: Tensor) -> None:
        """Run the slots of these new nodes. rows (k,): their parents in the frontier; tokens (k,): target ids."""
        pool, parent_features = self.pool, self.pool.features[-1]
        own = torch.eye(len(places), dtype=torch.bool, device=rows.device)
        self._seen = torch.cat([self._seen[rows], own], dim=1)  # ancestors and itself
        features = self._drafter(
            tokens,
            parent_features[rows],
            torch.full_like(rows, self._stable + pool.depths[places[0]] - 1),
            self._cache,
            _slot_mask(self._seen, self._stable, parent_features.dtype),
        )
        self.passes += 1
        pool.rows |= {place: len(pool.rows) + row for row, place in enumerate(places)}
        pool.features.append(features)
        self.frontier = places

    def finish(self) -> Pool:
        """Drop the drafted slots from the cache."""
        self._cache.truncate(self._stable)
        return self.pool


def grow_dynamic(growth: Growth, *, depth: int, top_k: int) -> None:
    """EAGLE-2, section 4.1: draft the top_k best nodes of each level further, by cumulative score.

    Always the best-ranked tokens of the drafter's own distribution, without temperature.
    """
    scores = torch.zeros(1, device=growth.pool.features[0].device)
    for level in range(1, depth + 1):
        log_probs = growth.log_probs()
        top = torch.topk(log_probs, min(top_k, log_probs.shape[-1]), dim=-1)  # (F, k)
        total, tokens = scores[:, None] + top.values, growth.target_ids(top.indices)
        width = tokens.shape[1]
        parents = [place for place in growth.frontier for _ in range(width)]
        values, totals = torch.stack([top.values, total]).flatten(1).tolist()
        first = growth.add(parents, tokens.flatten().tolist(), values, totals)
        if level == depth:
            return
        best = torch.topk(total.flatten(), min(top_k, total.numel()))
        places = [first + place for place in best.indices.tolist()]
        growth.descend(places, best.indices // width, tokens.flatten()[best.indices])
        scores = best.values


def grow_fixed(growth: Growth, paths: Sequence[RankPath], pick: Picker) -> None:
    """EAGLE-1, section 3.2: the tree of these rank paths. A child that is impossible is left out, with its own."""
    counts = Counter(path[:-1] for path in paths)
    frontier: list[RankPath] = [()]
    while frontier:
        picked = pick(growth, [counts[path] for path in frontier])
        parents, tokens, values, scores, names = [], [], [], [], []
        for name, place, children in zip(frontier, growth.frontier, picked, strict=True):
            above = 0.0 if place == ROOT else growth.pool.scores[place]
            for rank, (token, log_prob) in enumerate(children):
                parents.append(place)
                tokens.append(token)
                values.append(log_prob)
                scores.append(above + log_prob)
                names.append((*name, rank))
        if not tokens:
            return
        first = growth.add(parents, tokens, values, scores)
        deeper = [index for index, name in enumerate(names) if counts[name]]
        frontier = [names[index] for index in deeper]
        if deeper:
            device = growth.pool.features[0].device
            rows = torch.tensor([growth.frontier.index(parents[index]) for index in deeper], device=device)
            chosen = torch.tensor([tokens[index] for index in deeper], device=device)
            growth.descend([first + index for index in deeper], rows, chosen)


class Picker:
    """Which children the frontier's nodes get: the drafter's best, or random ones."""

    def __call__(self, growth: Growth, counts: list[int]) -> list[list[tuple[int, float]]]:
        """Per frontier node that many children, or fewer: token and log-probability. Here: the best-ranked."""
        log_probs = growth.log_probs()
        top = torch.topk(log_probs, min(max(counts), log_probs.shape[-1]), dim=-1)
        tokens, values = growth.target_ids(top.indices).tolist(), top.values.tolist()
        return [list(zip(t, v, strict=True))[:n] for t, v, n in zip(tokens, values, counts, strict=True)]


class RandomPicker(Picker):
    """Children drawn without replacement from the processed draft distribution (EAGLE-1, section 3.3)."""

    def __init__(self, drafts: Chooser, context: Sequence[int], vocabulary: int) -> None:
        self._drafts, self._context, self._vocabulary = drafts, context, vocabulary

    def __call__(self, growth: Growth, counts: list[int]) -> list[list[tuple[int, float]]]:
        """Notes each node's distribution in the pool: the acceptance test needs it."""
        picked = []
        for place, count, row in zip(growth.frontier, counts, growth.log_probs(), strict=True):
            history = [*self._context, *growth.pool.path(place)]
            probs = self._drafts.distribution(growth.spread(row, self._vocabulary), history)
            growth.pool.draws[place] = probs
            tokens = self._drafts.pick_several(probs, count)
            values = probs[tokens].log().tolist()
            picked.append(list(zip(tokens, values, strict=True)))
        return picked


def keep_best(scores: list[float], count: int) -> list[int]:
    """Places of the best `count` nodes, in pool order (EAGLE-2, section 4.2).

    A child never scores above its parent and comes after it, so a stable order keeps the set closed.
    """
    best = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count]
    return sorted(best)


def _slot_mask(seen: Tensor, stable: int, dtype: torch.dtype) -> Tensor:
    """(k, stable + draft slots) additive: all true slots, own ancestors, itself."""
    mask = torch.zeros(seen.shape[0], stable + seen.shape[1], dtype=dtype, device=seen.device)
    mask[:, stable:].masked_fill_(~seen, torch.finfo(dtype).min)
    return mask
