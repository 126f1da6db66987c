"""Medusa: extra heads on the target's last hidden state draft several positions at once (Cai et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from explorer.events import CodeLine
from explorer.methods._code import said
from explorer.methods.base import Method, Outcome, Proposal, Setup, SizedParams, TrainingParams
from explorer.methods.trees import MAX_RANKS, RankPath, assumed_accuracies, best_paths, in_order, medusa_tree
from explorer.payloads import MedusaPayload
from explorer.sizing import Costs, Sizer
from explorer.target import TAP_LAST
from explorer.trace import Decision, Record, TopToken
from explorer.tree import Candidate, CandidateTree

PUBLISHED_NODES = 63
SHOWN_RANKS = 5


class MedusaParams(SizedParams, TrainingParams):
    """Which static tree the heads fill."""

    tree: Literal[
        "auto",
        "mc_sim_7b_63",
        "vicuna_7b_stage2",
        "vicuna_7b_stage1_ablation",
        "vicuna_7b_stage1",
        "vicuna_13b_stage2",
        "vicuna_13b_stage1",
        "vicuna_33b_stage2",
        "vicuna_33b_stage1",
        "zephyr_stage2",
    ] = Field(
        "auto",
        title="tree",
        description="auto: the likeliest paths of these heads, as many as the next field says; or a published tree "
        "of 63 nodes, without what is deeper than there are heads.",
    )
    nodes: int = Field(
        11,
        ge=1,
        le=63,
        title="nodes",
        description="Drafted nodes of the auto tree.",
        json_schema_extra={"when": {"tree": "auto"}},
    )


class Medusa(Method):
    """Heads read the last accepted position's hidden state, which the verification pass computed anyway.

    Node of rank path (r1, ..., rd) carries the rd-th token of head d, whatever its parent (section 2.1.2).
    Acceptance is the lane's rule. Deviations from the public code: a path ends at its leaf, where a padded path
    may match token 0 there; and its "nucleus" and slow typical modes are not offered, because they are neither
    lossless nor the paper's (a shared node is drawn once per path, the luckiest path wins, and a rejected draw
    is thrown away and drawn anew).
    """

    name = "medusa"
    title = "Medusa"
    paper = "Cai et al. 2024, arXiv 2401.10774"
    summary = "Extra heads guess several positions ahead from one hidden state; a fixed sparse tree combines them."
    needs = "medusa"
    taps = frozenset({TAP_LAST})
    Params = MedusaParams
    pass_per_depth = False

    def __init__(self, params: MedusaParams, setup: Setup) -> None:
        self._texts, self._heads, self._sizer = setup.texts, setup.drafter, setup.sizer
        self._tree_name = params.tree
        self._paths = choose_paths(params, setup.drafter.num_heads, setup.drafter.accuracies)
        self._hidden = torch.empty(0)
        self._first: Decision | None = None
        self._token_ids: list[list[int]] = []
        self._probs: list[list[float]] = []

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        if params.size == "auto":
            return f"up to {cls.max_rows(params) - 1} nodes"
        return f"tree of {params.nodes} nodes" if params.tree == "auto" else f"tree {params.tree}"

    @classmethod
    def sizer(cls, params: Any, drafter: Any, costs: Costs) -> Sizer:
        """One pass of the heads gives all levels."""
        return Sizer(costs, cls.max_rows(params) - 1, drafter.num_heads, pass_per_depth=cls.pass_per_depth)

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """Heads, then a fixed tree."""
        nodes = "the best nodes" if params.get("size") == "auto" else f"{said(params, 'nodes')} nodes"
        tree = f"{nodes} of the fixed tree" if params.get("tree", "auto") == "auto" else "the published tree"
        return (
            CodeLine("drafter-prefill", "h ← the target's last hidden state of the prompt"),
            CodeLine("draft", "for each head k: its best tokens for position +k, from h", "payload.heads"),
            CodeLine("draft", f"drafts ← {tree}, filled with them", "payload.heads"),
            CodeLine("commit", "h ← the target's hidden state of the last accepted token"),
        )

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Root and tree."""
        return 1 + (params.nodes if params.tree == "auto" else PUBLISHED_NODES)

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """The last prompt position's hidden state drafts first."""
        self._hidden = taps[TAP_LAST][-1]

    def propose(self, context: list[int]) -> Proposal:
        """Evaluate all heads on one vector and fill the static tree, or what of it pays."""
        self._token_ids, self._probs = [], []
        if self._sizer is not None and not self._sizer.choice.depth:
            return Proposal(CandidateTree(context[-1]))
        logits = self._heads(self._hidden.to(self._heads.weight.device)).float()  # (K, D)
        top = torch.topk(logits, min(MAX_RANKS, logits.shape[-1]), dim=-1)  # (K, 10)
        probs = torch.log_softmax(logits, dim=-1).gather(-1, top.indices).exp()
        token_ids = top.indices if self._heads.token_map is None else self._heads.token_map[top.indices]
        self._token_ids, self._probs = token_ids.tolist(), probs.tolist()
        self.draft_passes += 1
        tree = self._fill(context[-1])
        return Proposal(tree if self._sizer is None else best_part(tree, self._sizer))

    def observe(self, outcome: Outcome) -> None:
        """The next draft starts from the last accepted node's hidden state: no extra pass."""
        last = outcome.accepted[-1] if outcome.accepted else 0
        self._hidden = outcome.output.taps[TAP_LAST][last]
        self._first = outcome.decisions.get(1)  # the first node stands right below the root

    def payload(self) -> Record | None:
        """What each head proposed; None where they were not asked."""
        if not self._probs:
            return None
        return MedusaPayload(
            tree=self._tree_name,
            heads=tuple(
                tuple(
                    TopToken(token_id=token, text=self._texts.show(token), prob=min(prob, 1.0))
                    for token, prob in zip(tokens[:SHOWN_RANKS], probs[:SHOWN_RANKS], strict=True)
                )
                for tokens, probs in zip(self._token_ids, self._probs, strict=True)
            ),
            threshold=self._first.threshold if self._first else None,
            entropy=self._first.entropy if self._first else None,
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


def best_part(tree: CandidateTree, sizer: Sizer) -> CandidateTree:
    """As many of the tree's likeliest nodes as the sizer says; a parent is never less likely than its child."""
    scores = [each.score or 0.0 for each in tree.candidates]
    levels: list[list[float]] = [[] for _ in range(max(tree.depths))]
    for depth, score in zip(tree.depths[1:], scores, strict=True):
        levels[depth - 1].append(score)
    count = sizer.keep(levels)
    kept = sorted(sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count])
    ids = {0: 0} | {place + 1: node for node, place in enumerate(kept, start=1)}
    parts = (tree.candidates[place] for place in kept)
    return CandidateTree(tree.root, tuple(replace(each, parent=ids[each.parent]) for each in parts))


def choose_paths(params: MedusaParams, heads: int, accuracies: list[list[float]]) -> list[RankPath]:
    """Rank paths of the tree, parents first, no deeper than there are heads."""
    if params.tree == "auto":
        paths = best_paths(accuracies or assumed_accuracies(heads), params.nodes)
    else:
        paths = medusa_tree(params.tree)
    return in_order(path for path in paths if len(path) <= heads)
