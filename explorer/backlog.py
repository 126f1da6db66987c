"""Turns that are not written down yet, of whatever lane: a few at a time take half as long.

A pass reads all weights, so whatever a processor held of the code and data that write a record is gone after it. For
the second turn in a row it is there again. See docs/design/cpu-products.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from explorer.decode import Turn
from explorer.record import StepWriter
from explorer.trace import OutputToken, Record, Step

MOST_TURNS = 8
"""Each holds its pass's logits: 2 MB for a tree of 12 and a vocabulary of 49,152."""
PATIENCE_S = 0.1
"""What a viewer sees may lag behind by so much, not counting the turn that is running."""

Owner = TypeVar("Owner")


@dataclass(frozen=True)
class _Waiting(Generic[Owner]):
    owner: Owner
    writer: StepWriter
    turn: Turn
    payload: Record | None
    last: bool


class Backlog(Generic[Owner]):
    """Keeps turns in their order until they are written. `now` in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: list[_Waiting[Owner]] = []
        self._since = 0.0

    def add(self, owner: Owner, writer: StepWriter, turn: Turn, payload: Record | None, *, last: bool) -> None:
        """payload: the method's own record, which has to be asked for before its next turn. last: the lane's end."""
        if not self._waiting:
            self._since = self._now()
        self._waiting.append(_Waiting(owner, writer, turn, payload, last))

    @property
    def due(self) -> bool:
        """Should they be written now?"""
        return len(self._waiting) >= MOST_TURNS or (bool(self._waiting) and self._now() - self._since >= PATIENCE_S)

    def write(self) -> Iterator[tuple[Owner, Step, tuple[OutputToken, ...]]]:
        """Write all that wait, oldest first."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            step = each.writer.step(each.turn, each.payload)
            yield each.owner, step, each.writer.tokens(each.turn, each.last)
