"""The candidate tree: depths, paths and visibility follow from the parents alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.tree import Candidate, CandidateTree, merge_paths


@st.composite
def parent_lists(draw: st.DrawFn) -> list[int]:
    """Parents of nodes 1.., each an earlier node."""
    return [draw(st.integers(0, place)) for place in range(draw(st.integers(0, 20)))]


def tree_of(parents: list[int], root: int = 5) -> CandidateTree:
    return CandidateTree(root, tuple(Candidate(100 + place, parent, "test") for place, parent in enumerate(parents)))


def ancestors(parents: list[int], node: int) -> set[int]:
    """The node and all above it, by walking up."""
    found = {node}
    while node:
        node = parents[node - 1]
        found.add(node)
    return found


@given(parent_lists())
def test_a_row_sees_its_ancestors_and_itself_and_nothing_else(parents: list[int]) -> None:
    visible = tree_of(parents).visibility()
    assert visible.dtype == torch.bool
    for node in range(len(parents) + 1):
        assert set(visible[node].nonzero().flatten().tolist()) == ancestors(parents, node)


@given(parent_lists())
def test_depth_is_the_length_of_the_path(parents: list[int]) -> None:
    tree = tree_of(parents)
    assert len(tree.depths) == len(tree) == len(tree.token_ids) == len(parents) + 1
    for node, depth in enumerate(tree.depths):
        path = tree.path(node)
        assert len(path) == depth
        assert {0, *path} == ancestors(parents, node)
        assert path == sorted(path)
        assert tree.parent(node) == ([None] if node == 0 else [0, *path][-2:-1])[0]


@given(parent_lists())
def test_children_and_parents_say_the_same(parents: list[int]) -> None:
    tree = tree_of(parents)
    pairs = {(parent, child) for parent, children in enumerate(tree.children()) for child in children}
    assert pairs == {(parent, place) for place, parent in enumerate(parents, start=1)}
    assert all(children == sorted(children) for children in tree.children())


@pytest.mark.parametrize("parents", [[1], [0, 2], [0, 1, -1], [0, 0, 9]])
def test_a_node_before_its_parent_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="must come after its parent"):
        tree_of(parents)


def test_a_tree_is_frozen() -> None:
    tree = tree_of([0, 1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        tree.root = 3  # type: ignore[misc]
    assert tree_of([]).token_ids == [5]


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8))
def test_merged_paths_are_a_trie(paths: list[list[int]]) -> None:
    """Every path can be read off its route; common beginnings exist once; nothing else is in the tree."""
    tree, routes = merge_paths(9, paths, "pool")
    tokens = tree.token_ids
    assert [[tokens[node] for node in route] for route in routes] == paths
    assert all(tree.path(route[-1]) == route for route in routes if route)
    prefixes = {tuple(path[:end]) for path in paths for end in range(1, len(path) + 1)}
    assert len(tree) == 1 + len(prefixes)
    for children in tree.children():
        assert len({tokens[child] for child in children}) == len(children)
    assert {candidate.source for candidate in tree.candidates} <= {"pool"}
