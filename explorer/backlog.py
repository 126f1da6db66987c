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
MOST_ROWS = 512
"""Of all waiting passes: each row has the logits of a vocabulary, 0.2 MB in float32 where that has 49,152 tokens."""
PATIENCE_S = 0.1
"""A turn that would be older than this when the next one is made is written at once."""

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
        if not self._waiting:  # since the turn began: a slow model's turns wait for nothing
            self._since = self._now() - sum(span.duration_ms for span in turn.spans) / 1000.0
        self._waiting.append(_Waiting(owner, writer, turn, payload, last))

    @property
    def due(self) -> bool:
        """Should they be written now?"""
        if not self._waiting:
            return False
        rows = sum(len(each.turn.output.logits) for each in self._waiting)
        return len(self._waiting) >= MOST_TURNS or rows >= MOST_ROWS or self._now() - self._since >= PATIENCE_S

    def write(self) -> Iterator[tuple[Owner, Step, tuple[OutputToken, ...]]]:
        """Write all that wait, oldest first."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            step = each.writer.step(each.turn, each.payload)
            yield each.owner, step, each.writer.tokens(each.turn, each.last)
