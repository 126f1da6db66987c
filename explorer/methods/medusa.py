"""Medusa: extra heads on the target's last hidden state draft several positions at once (Cai et al. 2024)."""

from __future__ import annotations

import heapq
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from explorer.methods.base import Method, Outcome, Proposal, Setup
from explorer.params import Params
from explorer.payloads import MedusaPayload
from explorer.target import TAP_LAST
from explorer.trace import Record, TopToken
from explorer.tree import Candidate, CandidateTree

MAX_RANKS = 10
"""Tokens of each head that may enter the tree: the original's TOPK."""
SHOWN_RANKS = 5

RankPath = tuple[int, ...]


class MedusaParams(Params):
    """Which static tree the heads fill."""

    tree: Literal["auto", "mc_sim_7b_63"] = Field(
        "auto",
        title="tree",
        description="auto: the likeliest paths of these heads, as many as the next field says; or a published tree.",
    )
    nodes: int = Field(11, ge=1, le=63, title="nodes", description="Drafted nodes of the auto tree.")


class Medusa(Method):
    """Heads read the last accepted position's hidden state, which the verification pass computed anyway.

    Node of rank path (r1, ..., rd) carries the rd-th token of head d, whatever its parent (section 2.1.2).
    Deviation from the public code: a path ends at its leaf; there a padded path may match token 0.
    """

    name = "medusa"
    title = "Medusa"
    paper = "Cai et al. 2024, arXiv 2401.10774"
    summary = "Extra heads guess several positions ahead from one hidden state; a fixed sparse tree combines them."
    needs = "medusa"
    taps = frozenset({TAP_LAST})
    Params = MedusaParams

    def __init__(self, params: MedusaParams, setup: Setup) -> None:
        self._texts, self._heads = setup.texts, setup.drafter
        self._tree_name = params.tree
        self._paths = choose_paths(params, setup.drafter.num_heads, setup.drafter.accuracies)
        self._hidden = torch.empty(0)
        self._token_ids: list[list[int]] = []
        self._probs: list[list[float]] = []

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        return f"tree of {params.nodes} nodes" if params.tree == "auto" else f"tree {params.tree}"

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Root and tree."""
        return 1 + (params.nodes if params.tree == "auto" else 63)

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """The last prompt position's hidden state drafts first."""
        self._hidden = taps[TAP_LAST][-1]

    def propose(self, context: list[int]) -> Proposal:
        """Evaluate all heads on one vector and fill the static tree."""
        logits = self._heads(self._hidden).float()  # (K, D)
        top = torch.topk(logits, min(MAX_RANKS, logits.shape[-1]), dim=-1)  # (K, 10)
        probs = torch.exp(top.values - torch.logsumexp(logits, dim=-1, keepdim=True))
        token_ids = top.indices if self._heads.token_map is None else self._heads.token_map[top.indices]
        self._token_ids, self._probs = token_ids.tolist(), probs.tolist()
        self.draft_passes += 1
        return Proposal(self._fill(context[-1]))

    def observe(self, outcome: Outcome) -> None:
        """The next draft starts from the last accepted node's hidden state: no extra pass."""
        last = outcome.accepted[-1] if outcome.accepted else 0
        self._hidden = outcome.output.taps[TAP_LAST][last]

    def payload(self) -> Record:
        """What each head proposed."""
        return MedusaPayload(
            tree=self._tree_name,
            heads=tuple(
                tuple(
                    TopToken(token_id=token, text=self._texts.show(token), prob=min(prob, 1.0))
                    for token, prob in zip(tokens[:SHOWN_RANKS], probs[:SHOWN_RANKS], strict=True)
                )
                for tokens, probs in zip(self._token_ids, self._probs, strict=True)
            ),
        )

    def _fill(self, root: int) -> CandidateTree:
        nodes: dict[RankPath, int] = {(): 0}
        scores: dict[RankPath, float] = {(): 1.0}
        candidates: list[Candidate] = []
        for path in self._paths:
            head, rank = len(path) - 1, path[-1]
            if path[:-1] not in nodes or rank >= len(self._probs[head]):
                continue  # a draft vocabulary may have fewer tokens than the tree has ranks
            prob = self._probs[head][rank]
            scores[path] = scores[path[:-1]] * prob
            candidates.append(
                Candidate(self._token_ids[head][rank], nodes[path[:-1]], "medusa", rank, prob, scores[path])
            )
            nodes[path] = len(candidates)
        return CandidateTree(root, tuple(candidates))


def choose_paths(params: MedusaParams, heads: int, accuracies: list[list[float]]) -> list[RankPath]:
    """Rank paths of the tree, shorter first, then in lexicographic order, no deeper than there are heads."""
    if params.tree == "mc_sim_7b_63":
        paths = _mc_sim_7b_63()
    else:
        paths = best_paths(accuracies or _assumed_accuracies(heads), params.nodes)
    return sorted((path for path in paths if len(path) <= heads), key=lambda path: (len(path), path))


def best_paths(accuracies: list[list[float]], nodes: int) -> list[RankPath]:
    """The `nodes` paths that are likeliest to be right, grown from the root (Medusa, section 2.3.3).

    accuracies[d][r]: how often the r-th token of head d is the right one; a path's chance is their product.
    """
    chosen: list[RankPath] = []
    heap: list[tuple[float, RankPath]] = [(-accuracies[0][0], (0,))]
    while heap and len(chosen) < nodes:
        negative, path = heapq.heappop(heap)
        chosen.append(path)
        depth, rank, chance = len(path), path[-1], -negative
        ranks = accuracies[depth - 1]
        if rank + 1 < min(len(ranks), MAX_RANKS):
            before = chance / ranks[rank] if ranks[rank] > 0 else 0.0
            heapq.heappush(heap, (-before * ranks[rank + 1], (*path[:-1], rank + 1)))
        if depth < len(accuracies):
            heapq.heappush(heap, (-chance * accuracies[depth][0], (*path, 0)))
    return chosen


def _assumed_accuracies(heads: int) -> list[list[float]]:
    """For heads that come without measured accuracies: falling by depth and by rank."""
    return [[0.5 * 0.6**head * 0.45**rank for rank in range(MAX_RANKS)] for head in range(heads)]


def _mc_sim_7b_63() -> list[RankPath]:
    """The published tree, as children counts per path (FasterDecoding/Medusa, medusa_choices.py)."""
    children: dict[RankPath, int] = {
        (): 10,
        (0,): 10,
        (1,): 7,
        (2,): 3,
        (3,): 2,
        **{(rank,): 1 for rank in range(4, 10)},
        (0, 0): 10,
        (0, 1): 3,
        (0, 2): 2,
        **{(0, rank): 1 for rank in range(3, 8)},
        (1, 0): 2,
        (2, 0): 1,
        (0, 0, 0): 2,
    }
    return [(*path, rank) for path, count in children.items() for rank in range(count)]
