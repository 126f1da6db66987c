"""Marks of one column that would cover one another step aside; labels go where room is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MARK = 11.0
"""Pixels of height that a mark needs."""
LABEL = 14.0
"""Pixels of height that a label needs."""
SLOTS = 5
"""Places side by side; what is more stands on the last one."""


@dataclass(frozen=True)
class Spot:
    """Where a mark stands."""

    slot: int
    """Steps aside from the middle of its column."""
    label: int | None
    """The slot after which its label is written; None where there is no room for it."""
    beside: int = 0
    """Marks that stand aside at the height of its label."""


def spread(columns: Sequence[int], heights: Sequence[float], order: Sequence[int]) -> list[Spot]:
    """A spot per mark. heights in pixels; in `order` the first come first: they keep the middle and get the labels."""
    taken: dict[tuple[int, int], list[float]] = {}
    slots = [0] * len(columns)
    for place in order:
        slot = 0
        while slot < SLOTS - 1 and _near(taken.get((columns[place], slot), ()), heights[place], MARK):
            slot += 1
        taken.setdefault((columns[place], slot), []).append(heights[place])
        slots[place] = slot
    labelled: dict[int, list[float]] = {}
    labels: dict[int, tuple[int, int]] = {}
    for place in order:
        column, height = columns[place], heights[place]
        if slots[place] or _near(labelled.get(column, ()), height, LABEL):
            continue
        labelled.setdefault(column, []).append(height)
        near = [slot for slot in range(SLOTS) for other in taken.get((column, slot), ()) if abs(other - height) < MARK]
        labels[place] = (max(near), len(near) - 1)
    return [Spot(slot, *labels.get(place, (None, 0))) for place, slot in enumerate(slots)]


def _near(others: Sequence[float], height: float, room: float) -> bool:
    """Is one of them nearer than that?"""
    return any(abs(height - other) < room for other in others)
