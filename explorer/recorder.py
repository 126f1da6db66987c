"""A lane's own clock: measured phases, laid end to end, with whatever lies between them left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from explorer.trace import Span


def nothing() -> None:
    """A device that needs no waiting for."""


class Mark(Protocol):
    """A moment on the device's own clock, which the host need not wait for until it is read."""

    def wait(self) -> None:
        """Until the device has come to it."""

    def ms_since(self, earlier: Any) -> float:
        """Milliseconds between two marks that the device has come to."""


class CudaMark:
    """A CUDA event, recorded now on the device's current stream."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record(torch.cuda.current_stream(device))

    def wait(self) -> None:
        """Until the device has come to it."""
        self._event.synchronize()

    def ms_since(self, earlier: CudaMark) -> float:
        """By the device's clock."""
        return float(earlier._event.elapsed_time(self._event))


@dataclass(frozen=True)
class _Measured:
    """A phase: what it took, or the marks that will tell."""

    phase: str
    duration_ms: float = 0.0
    begin: Mark | None = None
    end: Mark | None = None


class LaneClock:
    """Adds up a lane's phases. Both clocks are injected.

    With `mark`, phases are told apart by marks in the device's queue, and nothing waits before the phases are read:
    then once, for the last mark. Without it the host's clock `now` (seconds) measures, and `synchronize` waits for the
    device at both borders of a phase, so that none pays for another.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        synchronize: Callable[[], None] = nothing,
        mark: Callable[[], Mark] | None = None,
    ) -> None:
        self._now, self._synchronize, self._mark = now, synchronize, mark
        self._open: list[_Measured] = []
        self._spans: list[Span] = []
        self._elapsed_ms = 0.0

    @property
    def elapsed_ms(self) -> float:
        """All phases so far."""
        self._settle()
        return self._elapsed_ms

    @contextmanager
    def span(self, phase: str) -> Iterator[None]:
        """Measure a phase."""
        if self._mark is not None:
            begin = self._mark()
            yield
            self._open.append(_Measured(phase, begin=begin, end=self._mark()))
            return
        self._synchronize()
        start = self._now()
        yield
        self._synchronize()
        self.add(phase, (self._now() - start) * 1000.0)

    def add(self, phase: str, duration_ms: float) -> None:
        """Put a phase that was measured elsewhere (the shared prefill) on this lane's clock."""
        self._open.append(_Measured(phase, duration_ms))

    def take(self) -> tuple[Span, ...]:
        """The phases since the last call."""
        self._settle()
        spans, self._spans = tuple(self._spans), []
        return spans

    def _settle(self) -> None:
        """Read what is open. Marks come in the order of the device's queue, so the last one is waited for alone."""
        last = next((each.end for each in reversed(self._open) if each.end is not None), None)
        if last is not None:
            last.wait()
        for each in self._open:
            took = each.duration_ms
            if each.begin is not None and each.end is not None:
                took = each.end.ms_since(each.begin)
            self._spans.append(Span(phase=each.phase, start_ms=self._elapsed_ms, duration_ms=took))
            self._elapsed_ms += took
        self._open.clear()


def clock_of(device: torch.device, synchronize: Callable[[], None]) -> LaneClock:
    """The clock of a lane on that device: CUDA's events where there are some."""
    if device.type == "cuda":
        return LaneClock(mark=lambda: CudaMark(device))
    return LaneClock(synchronize=synchronize)
