"""The best static candidate tree for measured guesses, and what it brings.

Everything here works on a table of ranks: row = a position of held-out text, column d = at which rank the
drafter had the token that followed d+1 places later (MISSED if not among its best). A path of ranks
(r1, ..., rd) is right at a position whose row begins with it, so the share of such rows is what the node
adds to the tokens per target pass (Medusa, arXiv 2401.10774, section 2.3.3, but with the measured joint
shares in place of products of accuracies: heads are right together more often than independent ones).
"""

from __future__ import annotations

from collections import Counter

from torch import Tensor

RANKS = 10
"""Ranks that are told apart."""
MISSED = RANKS

RankPath = tuple[int, ...]


def path_shares(table: Tensor) -> dict[RankPath, float]:
    """How often each path of ranks is right, for all paths that were right at least once."""
    counts: Counter[RankPath] = Counter()
    for row in table.tolist():
        for depth, rank in enumerate(row):
            if rank >= RANKS:
                break
            counts[tuple(row[: depth + 1])] += 1
    return {path: count / max(1, len(table)) for path, count in counts.items()}


def best_tree(shares: dict[RankPath, float], nodes: int) -> list[RankPath]:
    """The `nodes` paths that are right most often, shorter first.

    Greedy is exact here: a path is never right more often than its own beginning, so the best paths by
    share form a tree, and shares add up. Ties go to the shorter path, which keeps it one.
    """
    ranked = sorted(shares, key=lambda path: (-shares[path], len(path), path))
    return sorted(ranked[:nodes], key=lambda path: (len(path), path))


def tree_tokens(shares: dict[RankPath, float], tree: list[RankPath]) -> float:
    """Tokens per target pass of a static tree, the target's own token included, averaged over positions."""
    return 1 + sum(shares.get(path, 0.0) for path in tree)


def accuracies(table: Tensor) -> list[list[float]]:
    """[depth][rank]: how often the rank-th guess of that depth is right, whatever the others are."""
    return [
        [round(float((table[:, depth] == rank).float().mean()), 4) for rank in range(RANKS)]
        for depth in range(table.shape[1])
    ]
