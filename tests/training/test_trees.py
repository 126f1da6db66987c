"""The best static tree of measured guesses, against brute force."""

from itertools import combinations, pairwise

import pytest
import torch

from explorer.training.evaluate import report_of
from explorer.training.trees import MISSED, accuracies, best_tree, path_shares, tree_tokens


@pytest.fixture
def table():
    """Ranks of 3 guesses at 400 positions: good at rank 0, worse with depth, and right together more often."""
    generator = torch.Generator().manual_seed(4)
    ease = torch.rand(400, 1, generator=generator)
    noise = torch.rand(400, 3, generator=generator)
    hard = torch.tensor([0.6, 0.9, 1.2])
    ranks = ((noise * hard / ease.clamp_min(0.05)) * 2).long()
    return torch.where(ranks > 3, torch.tensor(MISSED), ranks)


def accepted(row, tree):
    """Length of the longest path of the tree that the row begins with."""
    depth = 0
    while depth < len(row) and tuple(row[: depth + 1]) in tree:
        depth += 1
    return depth


def test_tree_tokens_is_what_walking_the_tree_gives(table):
    shares = path_shares(table)
    for nodes in (1, 4, 11):
        tree = best_tree(shares, nodes)
        walked = sum(accepted(row, set(tree)) for row in table.tolist()) / len(table)
        assert tree_tokens(shares, tree) == pytest.approx(1 + walked)


def test_trees_hold_every_path_s_beginning_and_grow_with_nodes(table):
    shares = path_shares(table)
    trees = [best_tree(shares, nodes) for nodes in range(1, 20)]
    for nodes, tree in enumerate(trees, start=1):
        assert len(tree) == len(set(tree)) == nodes
        assert all(path[:-1] in tree or len(path) == 1 for path in tree)
        assert all(len(a) <= len(b) for a, b in pairwise(tree))
    assert all(set(small) <= set(large) for small, large in pairwise(trees))


def test_no_other_tree_of_that_size_brings_more(table):
    shares = path_shares(table)
    best = tree_tokens(shares, best_tree(shares, 4))
    top = sorted(shares, key=lambda path: -shares[path])[:12]
    closed = [tree for tree in combinations(top, 4) if all(p[:-1] in tree or len(p) == 1 for p in tree)]
    assert len(closed) > 20
    assert max(tree_tokens(shares, list(tree)) for tree in closed) == pytest.approx(best)


def test_a_report_agrees_with_its_table(table):
    report = report_of(table)
    right = table == 0
    assert report.top1 == [round(float(right[:, d].float().mean()), 4) for d in range(3)]
    chain = 1 + right.long().cumprod(1).sum(1).float().mean()
    assert report.chain_tokens == pytest.approx(float(chain), abs=1e-3)
    assert report.tree_tokens >= report.chain_tokens
    assert accuracies(table)[0][0] == report.top1[0]
    assert all(len(path) <= 3 for tree in report.trees.values() for path in tree)
