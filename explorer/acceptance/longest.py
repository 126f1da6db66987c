"""Rules under which several children may pass: the longest passing path wins. Not lossless."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from explorer.acceptance.matching import accept_matching
from explorer.acceptance.verdict import Verdict
from explorer.sampling import Chooser
from explorer.trace import Decision
from explorer.tree import CandidateTree

Judge = Callable[[Tensor, list[int], list[int]], list[Decision]]
"""A node's row (V,) of logits, its history, its children's tokens, to a decision for each child."""


def accept_typical(
    tree: CandidateTree, logits: Tensor, chooser: Chooser, history: Sequence[int], *, epsilon: float, delta: float
) -> Verdict:
    """Typical acceptance (Medusa, arXiv 2401.10774, section 2.3.1): target_prob > min(epsilon, delta * exp(-H)).

    H is the entropy of the target's distribution after the parent. Among the longest passing paths the one
    with the highest product of target_probs wins; the token after it is the target's most likely one, as in
    the original code's fast mode. At temperature 0 the distribution is one-hot: the greedy match.
    """
    if chooser.greedy:
        return accept_matching(tree, logits, chooser, history)

    def judge(row: Tensor, seen: list[int], tokens: list[int]) -> list[Decision]:
        target_probs = chooser.distribution(row, seen)
        entropy = float(-(target_probs * torch.log(target_probs + 1e-5)).sum())
        threshold = min(epsilon, delta * math.exp(-entropy))
        values = [float(target_probs[token]) for token in tokens]
        return [
            Decision(
                rule="typical", accepted=value > threshold, threshold=threshold, entropy=entropy, target_prob=value
            )
            for value in values
        ]

    path, decisions, seen = _longest(tree, logits, history, judge)
    return Verdict(path, chooser.best(logits[path[-1] if path else 0], seen), decisions)


def accept_top_k(tree: CandidateTree, logits: Tensor, chooser: Chooser, history: Sequence[int], *, k: int) -> Verdict:
    """Top-k match: a draft passes where it is among the target's k best tokens. Ties as under typical acceptance.

    With k = 1 it is the greedy match. The token after the path is the target's own choice.
    """

    def judge(row: Tensor, seen: list[int], tokens: list[int]) -> list[Decision]:
        scores = chooser.scores(row, seen)
        target_probs = torch.softmax(scores, dim=-1)
        best = torch.topk(scores, min(k, scores.shape[-1])).indices.tolist()
        return [
            Decision(
                rule="top-k", accepted=token in best, top_k=k, wanted=best[0], target_prob=float(target_probs[token])
            )
            for token in tokens
        ]

    path, decisions, seen = _longest(tree, logits, history, judge)
    return Verdict(path, chooser.choose(logits[path[-1] if path else 0], seen), decisions)


def _longest(
    tree: CandidateTree, logits: Tensor, history: Sequence[int], judge: Judge
) -> tuple[tuple[int, ...], dict[int, Decision], list[int]]:
    """The longest path of passing nodes, then the likeliest; the decisions; the history at its end."""
    children, tokens = tree.children(), tree.token_ids
    decisions: dict[int, Decision] = {}
    weights = {0: 0.0}  # passing nodes, with the sum of log target_probs on their paths
    best = 0
    for node in range(len(tree)):
        if node not in weights or not children[node]:
            continue
        seen = [*history, *(tokens[step] for step in tree.path(node))]
        judged = judge(logits[node], seen, [tokens[child] for child in children[node]])
        for child, decision in zip(children[node], judged, strict=True):
            decisions[child] = decision
            if decision.accepted:
                weights[child] = weights[node] + math.log(max(decision.target_prob or 0.0, 1e-45))
                if (tree.depths[child], weights[child]) > (tree.depths[best], weights[best]):
                    best = child
    path = tuple(tree.path(best))
    return path, decisions, [*history, *(tokens[step] for step in path)]
