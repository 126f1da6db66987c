"""The candidate tree: what one target pass verifies. A chain is a thin tree, plain decoding an empty one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Candidate:
    """A drafted token below an earlier node of its tree."""

    token_id: int
    parent: int
    """Id of the parent node; 0 is the root."""
    source: str
    rank: int | None = None
    draft_prob: float | None = None
    score: float | None = None
    """Product of draft probabilities along the path."""
    drawn: bool = False
    """Drawn at random from the parent's draft_probs, not simply proposed."""
    also: str | None = None
    """Another drafter that proposed the same token here."""


@dataclass(frozen=True)
class CandidateTree:
    """Node 0 is the root (decided, not cached); nodes 1.. are candidates, parents before children."""

    root: int
    """Token id of the root."""
    candidates: tuple[Candidate, ...] = ()
    depths: tuple[int, ...] = field(init=False)
    """Depth per node, root included: depths[0] == 0."""

    def __post_init__(self) -> None:
        depths = [0]
        for place, candidate in enumerate(self.candidates, start=1):
            if not 0 <= candidate.parent < place:
                raise ValueError(f"node {place} must come after its parent, which is {candidate.parent}")
            depths.append(depths[candidate.parent] + 1)
        object.__setattr__(self, "depths", tuple(depths))

    def __len__(self) -> int:
        """Nodes, root included."""
        return len(self.candidates) + 1

    @property
    def token_ids(self) -> list[int]:
        """Token per node, root first."""
        return [self.root, *(candidate.token_id for candidate in self.candidates)]

    def parent(self, node: int) -> int | None:
        """The parent's id; None for the root."""
        return None if node == 0 else self.candidates[node - 1].parent

    def children(self) -> list[list[int]]:
        """Children per node, in node order."""
        children: list[list[int]] = [[] for _ in range(len(self))]
        for place, candidate in enumerate(self.candidates, start=1):
            children[candidate.parent].append(place)
        return children

    def path(self, node: int) -> list[int]:
        """Node ids from just below the root down to `node`; empty for the root."""
        path: list[int] = []
        while node != 0:
            path.append(node)
            node = self.candidates[node - 1].parent
        return path[::-1]

    def visibility(self) -> Tensor:
        """(T, T) bool: row attends to column, that is, column is an ancestor or the row itself."""
        visible = torch.eye(len(self), dtype=torch.bool)  # (T, T)
        for place, candidate in enumerate(self.candidates, start=1):
            visible[place] |= visible[candidate.parent]
        return visible


def with_branch(tree: CandidateTree, tokens: Sequence[int], source: str) -> CandidateTree:
    """The tree and a chain of tokens below its root, common beginnings once. Nodes that were there keep their ids."""
    candidates = list(tree.candidates)
    places = {(each.parent, each.token_id): place for place, each in reversed(list(enumerate(candidates, start=1)))}
    parent = 0
    for token_id in tokens:
        place = places.get((parent, token_id))
        if place is None:
            candidates.append(Candidate(token_id, parent, source))
            place = len(candidates)
        else:
            candidates[place - 1] = replace(candidates[place - 1], also=source)
        parent = place
    return CandidateTree(tree.root, tuple(candidates))


def merge_paths(root: int, paths: Iterable[Sequence[int]], source: str) -> tuple[CandidateTree, list[list[int]]]:
    """A trie of token paths below the root, common beginnings once; and each path's node ids."""
    candidates: list[Candidate] = []
    places: dict[tuple[int, int], int] = {}
    routes: list[list[int]] = []
    for path in paths:
        parent, route = 0, []
        for token_id in path:
            if (parent, token_id) not in places:
                candidates.append(Candidate(token_id, parent, source))
                places[parent, token_id] = len(candidates)
            parent = places[parent, token_id]
            route.append(parent)
        routes.append(route)
    return CandidateTree(root, tuple(candidates)), routes
