"""EAGLE: a one-layer drafter extrapolates the target's features; a dynamic tree keeps the likeliest drafts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from explorer.methods.base import Method, Outcome, Proposal, Setup
from explorer.params import Params
from explorer.payloads import EaglePayload, FeatureError, FrontierNode
from explorer.target import TAP_LAST
from explorer.trace import Record
from explorer.tree import Candidate, CandidateTree

SLACK_ROWS = 64


class EagleParams(Params):
    """Size of the dynamic tree; the defaults are what paid best on a CPU of two cores.

    The original counts the root in total_token, and one level less in depth.
    """

    nodes: int = Field(11, ge=1, le=63, title="nodes", description="Drafted nodes kept by the re-ranking.")
    depth: int = Field(5, ge=1, le=10, title="depth", description="Levels below the root.")
    top_k: int = Field(4, ge=1, le=16, title="top_k", description="Nodes drafted further at each level.")


@dataclass
class Pool:
    """All drafted nodes of a step, level by level; places count through all levels."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    """Cumulative log-probabilities."""
    parents: list[int] = field(default_factory=list)
    """Place of the parent, -1 below the root."""
    ranks: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    expanded: set[int] = field(default_factory=set)
    rows: dict[int, int] = field(default_factory=dict)
    """Place to row in `features`, for nodes that were drafted further."""
    features: list[Tensor] = field(default_factory=list)
    """Per level (k, h): the predicted features of the nodes drafted further."""


class Eagle(Method):
    """Feature-level drafting (EAGLE-1, arXiv 2401.15077) with the dynamic tree of EAGLE-2 (arXiv 2406.16858).

    Slot t of the drafter pairs the embedding of token t + 1 with the feature of position t and predicts the
    feature of position t + 1. Only slots built from true features stay in its cache. The re-ranking breaks
    ties by pool order, so that a parent is always kept before its child (the original may lose the parent).
    """

    name = "eagle"
    title = "EAGLE"
    paper = "Li et al. 2024, arXiv 2401.15077 and 2406.16858"
    summary = "A small drafter predicts the target's next features; the likeliest branches of its tree are verified."
    needs = "eagle"
    taps = frozenset({TAP_LAST})
    Params = EagleParams

    def __init__(self, params: EagleParams, setup: Setup) -> None:
        self._params, self._texts, self._drafter = params, setup.texts, setup.drafter
        self._cache = setup.drafter.new_cache(setup.capacity + params.depth * params.top_k + SLACK_ROWS)
        self._pending: tuple[list[int], Tensor] | None = None
        self._feature = torch.empty(0)
        self._pool = Pool()
        self._kept: list[int] = []
        self._errors: tuple[FeatureError, ...] = ()

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        return f"dynamic tree, {params.nodes} nodes, depth {params.depth}"

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Root and tree."""
        return 1 + int(params.nodes)

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """Run all prompt slots: token t + 1 with the true feature of position t."""
        self._absorb(context[1:], taps[TAP_LAST])

    def propose(self, context: list[int]) -> Proposal:
        """Catch up with what the last step accepted, expand level by level, re-rank."""
        if self._pending is not None:
            self._absorb(*self._pending)
            self._pending = None
        self._pool = self._expand()
        self._kept = keep_best(self._pool.scores, self._params.nodes)
        return Proposal(self._tree(context[-1]))

    def observe(self, outcome: Outcome) -> None:
        """Note the true features of the accepted path; the next `propose` runs them."""
        rows = [0, *outcome.accepted]
        true = outcome.output.taps[TAP_LAST][rows]
        self._pending = (outcome.context[-len(rows) :], true)
        self._errors = self._feature_errors(rows, true)

    def payload(self) -> Record:
        """Frontier by depth, and what the re-ranking kept."""
        pool, node_of = self._pool, {place: node for node, place in enumerate(self._kept, start=1)}
        listed = [place for place in range(len(pool.tokens)) if place in node_of or place in pool.expanded]
        position = {place: index for index, place in enumerate(listed)}
        levels: list[list[FrontierNode]] = [[] for _ in range(max(pool.depths))]
        for place in listed:
            levels[pool.depths[place] - 1].append(
                FrontierNode(
                    node=node_of.get(place),
                    parent=position.get(pool.parents[place]),
                    token_id=pool.tokens[place],
                    text=self._texts.show(pool.tokens[place]),
                    draft_prob=_probability(pool.log_probs[place]),
                    score=_probability(pool.scores[place]),
                    expanded=place in pool.expanded,
                )
            )
        return EaglePayload(
            frontier=tuple(map(tuple, levels)),
            pool_nodes=len(pool.tokens),
            kept=len(self._kept),
            feature_errors=self._errors,
        )

    def _absorb(self, token_ids: list[int], features: Tensor) -> None:
        """Append slots made of true features (T, h); remember the last prediction."""
        start, device = self._cache.length, features.device
        predicted = self._drafter(
            torch.tensor(token_ids, device=device),
            features,
            torch.arange(start, start + len(token_ids), device=device),
            self._cache,
        )
        self.draft_passes += 1
        self._feature = predicted[-1:]  # (1, h)

    def _expand(self) -> Pool:
        """EAGLE-2, section 4.1: draft the top_k best nodes of each level further, by cumulative score."""
        pool, stable = Pool(), self._cache.length
        features = self._feature  # (1, h): the slot that proposes level 1
        scores = torch.zeros(1, device=features.device)
        parents, seen = [-1], torch.zeros(1, 0, dtype=torch.bool, device=features.device)
        for depth in range(1, self._params.depth + 1):
            log_probs, ranked = self._children(features)  # (F, k) each
            total = scores[:, None] + log_probs
            tokens = self._target_ids(ranked)
            first = self._add_level(pool, depth, parents, tokens, log_probs, total)
            if depth == self._params.depth:
                break
            best = torch.topk(total.flatten(), min(self._params.top_k, total.numel()))
            rows = best.indices // total.shape[1]  # (k,) row of the parent in this level
            own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
            seen = torch.cat([seen[rows], own], dim=1)  # (k, draft slots): ancestors and itself
            features = self._drafter(
                tokens.flatten()[best.indices],
                features[rows],
                torch.full_like(rows, stable + depth - 1),
                self._cache,
                _slot_mask(seen, stable, features.dtype),
            )
            self.draft_passes += 1
            scores, parents = best.values, [first + place for place in best.indices.tolist()]
            pool.rows |= {place: len(pool.rows) + row for row, place in enumerate(parents)}
            pool.expanded |= set(parents)
            pool.features.append(features)
        self._cache.truncate(stable)
        return pool

    def _children(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Best children of each row: log-probabilities and draft ids, both (F, k)."""
        log_probs = self._drafter.log_probs(features)
        top = torch.topk(log_probs, min(self._params.top_k, log_probs.shape[-1]), dim=-1)
        return top.values, top.indices

    def _target_ids(self, draft_ids: Tensor) -> Tensor:
        mapping = self._drafter.token_map
        return draft_ids if mapping is None else mapping[draft_ids]

    def _add_level(
        self, pool: Pool, depth: int, parents: list[int], tokens: Tensor, log_probs: Tensor, total: Tensor
    ) -> int:
        """Append a level; returns the place of its first node."""
        first, width = len(pool.tokens), tokens.shape[1]
        pool.tokens += tokens.flatten().tolist()
        pool.log_probs += log_probs.flatten().tolist()
        pool.scores += total.flatten().tolist()
        pool.parents += [parent for parent in parents for _ in range(width)]
        pool.ranks += list(range(width)) * len(parents)
        pool.depths += [depth] * tokens.numel()
        return first

    def _tree(self, root: int) -> CandidateTree:
        pool, nodes = self._pool, {-1: 0}
        candidates = []
        for place in self._kept:
            candidates.append(
                Candidate(
                    pool.tokens[place],
                    nodes[pool.parents[place]],
                    "eagle",
                    pool.ranks[place],
                    _probability(pool.log_probs[place]),
                    _probability(pool.scores[place]),
                )
            )
            nodes[place] = len(candidates)
        return CandidateTree(root, tuple(candidates))

    def _feature_errors(self, nodes: list[int], true: Tensor) -> tuple[FeatureError, ...]:
        """Predicted against true features, for accepted nodes whose feature the drafter predicted."""
        places = [self._kept[node - 1] if node else None for node in nodes]
        pairs = [(i, self._pool.rows[p]) for i, p in enumerate(places) if p is not None and p in self._pool.rows]
        drafted = torch.cat([self._feature, *self._pool.features])  # row 0 is the root's
        chosen = [0, *(row + 1 for _, row in pairs)]
        wanted = true[[0, *(i for i, _ in pairs)]].float()
        guess = drafted[chosen].float()
        distance = (guess - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp_min(1e-9)
        cosine = torch.cosine_similarity(guess, wanted, dim=-1)
        ids = [0, *(nodes[i] for i, _ in pairs)]
        return tuple(
            FeatureError(node=node, distance=d, cosine=c)
            for node, d, c in zip(ids, distance.tolist(), cosine.tolist(), strict=True)
        )


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


def _probability(log_prob: float) -> float:
    return min(1.0, math.exp(log_prob))
