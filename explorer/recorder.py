"""A lane's own clock: measured phases, laid end to end, with whatever lies between them left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from explorer.trace import Span


def nothing() -> None:
    """A device that needs no waiting for."""


class LaneClock:
    """Adds up a lane's phases. Both clocks are injected: `now` in seconds, `synchronize` waits for the device."""

    def __init__(self, now: Callable[[], float] = time.perf_counter, synchronize: Callable[[], None] = nothing) -> None:
        self._now, self._synchronize = now, synchronize
        self._spans: list[Span] = []
        self.elapsed_ms = 0.0

    @contextmanager
    def span(self, phase: str) -> Iterator[None]:
        """Measure a phase. The device is waited for at both borders, so that no phase pays for another."""
        self._synchronize()
        start = self._now()
        yield
        self._synchronize()
        self.add(phase, (self._now() - start) * 1000.0)

    def add(self, phase: str, duration_ms: float) -> None:
        """Put a phase that was measured elsewhere (the shared prefill) on this lane's clock."""
        self._spans.append(Span(phase=phase, start_ms=self.elapsed_ms, duration_ms=duration_ms))
        self.elapsed_ms += duration_ms

    def take(self) -> tuple[Span, ...]:
        """The phases since the last call."""
        spans, self._spans = tuple(self._spans), []
        return spans
