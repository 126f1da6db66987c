"""Static candidate trees: the published ones by name, and the best one for measured accuracies.

A tree is a list of rank paths: (0, 2) is the third-best draft below the best one. All published trees hold a
path's parent and its better siblings, so the number of children per path says it all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

MAX_RANKS = 10
"""Best tokens of each head that may enter a tree: the original Medusa's TOPK."""

RankPath = tuple[int, ...]

# Facts of medusa_choices.py in FasterDecoding/Medusa. "r" is the root, "0.3-0.5:1" says that each of the
# paths (0, 3), (0, 4) and (0, 5) has one child.
_MEDUSA_TREES = {
    "mc_sim_7b_63": "r:10 0:10 1:7 2:3 3:2 4-9:1 0.0:10 0.1:3 0.2:2 0.3-0.7:1 1.0:2 2.0:1 0.0.0:2",
    "vicuna_7b_stage2": (
        "r:10 0:10 1:5 2:2 3:2 4-7:1 0.0:9 0.1:4 0.2:2 0.3-0.5:1 1.0:3 1.1:1 2.0:1 0.0.0:4 0.0.1:1 0.0.2:1 0.1.0:1"
    ),
    "vicuna_7b_stage1_ablation": (
        "r:10 0:10 1:4 2:2 3:2 4-6:1 0.0:10 0.1:4 0.2:2 0.3-0.5:1 1.0:3 1.1:1 2.0:1 3.0:1 "
        "0.0.0:4 0.0.1:1 0.0.2:1 0.1.0:1"
    ),
    "vicuna_7b_stage1": "r:10 0:10 1:7 2:4 3:3 4:2 5:2 6-9:1 0.0:9 0.1:3 0.2:2 0.3-0.5:1 1.0:2 2.0:1 0.0.0:1",
    "vicuna_13b_stage2": (
        "r:10 0:10 1:4 2:2 3-5:1 0.0:10 0.1:4 0.2:2 0.3-0.5:1 1.0:3 1.1:1 2.0:1 3.0:1 "
        "0.0.0:4 0.0.1:2 0.0.2:1 0.1.0:1 1.0.0:1"
    ),
    "vicuna_13b_stage1": ("r:10 0:10 1:7 2:4 3:2 4:2 5-8:1 0.0:10 0.1:4 0.2:2 0.3-0.5:1 1.0:2 1.1:1 2.0:1 0.0.0:1"),
    "vicuna_33b_stage2": (
        "r:10 0:10 1:5 2:3 3:2 4-7:1 0.0:10 0.1:4 0.2:2 0.3-0.5:1 1.0:3 1.1:1 2.0:1 0.0.0:3 0.0.1:1 0.1.0:1"
    ),
    "vicuna_33b_stage1": "r:10 0:10 1:8 2:5 3:3 4:2 5:2 6-9:1 0.0:9 0.1:3 0.2:2 0.3-0.4:1 1.0:2 2.0:1",
    "zephyr_stage2": ("r:10 0:10 1:6 2:4 3:2 4:2 5-7:1 0.0:10 0.1:4 0.2:2 0.3-0.5:1 1.0:2 1.1:1 2.0:1 0.0.0:2 0.0.1:1"),
}

# choices.py on branch v1 of SafeAILab/EAGLE. It is called mc_sim_7b_63 there, as Medusa's tree is.
_EAGLE_1 = "r:4 0:3 1:2 2:2 3:1 0.0:3 0.1:2 0.2:2 1.0:1 0.0.0:3 0.0.0.0:2"


def medusa_tree(name: str) -> list[RankPath]:
    """A published Medusa tree, 63 paths."""
    return _paths(_MEDUSA_TREES[name])


def eagle_tree() -> list[RankPath]:
    """EAGLE-1's tree, 25 paths."""
    return _paths(_EAGLE_1)


def chain(length: int) -> list[RankPath]:
    """The thinnest tree: the best draft at each depth."""
    return [(0,) * depth for depth in range(1, length + 1)]


def in_order(paths: Iterable[RankPath]) -> list[RankPath]:
    """Shorter paths first, then in lexicographic order: every parent before its children."""
    return sorted(paths, key=lambda path: (len(path), path))


def best_paths(accuracies: Sequence[Sequence[float]], nodes: int) -> list[RankPath]:
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


def assumed_accuracies(heads: int) -> list[list[float]]:
    """For heads that come without measured accuracies: falling by depth and by rank."""
    return [[0.5 * 0.6**head * 0.45**rank for rank in range(MAX_RANKS)] for head in range(heads)]


def _paths(table: str) -> list[RankPath]:
    """A table's rank paths, in order."""
    paths: list[RankPath] = []
    for entry in table.split():
        names, count = entry.split(":")
        paths += [(*parent, rank) for parent in _named(names) for rank in range(int(count))]
    return in_order(paths)


def _named(names: str) -> list[RankPath]:
    """Which paths an entry of a table speaks of."""
    if names == "r":
        return [()]
    first, _, last = names.partition("-")
    *stem, start = map(int, first.split("."))
    end = int(last.split(".")[-1]) if last else start
    return [(*stem, rank) for rank in range(start, end + 1)]
