"""The clock with marks in a device's queue: spans end to end, one wait when they are read, none before."""

from __future__ import annotations

import pytest
import torch

from explorer.recorder import LaneClock, clock_of


class Queue:
    """A device's queue with a clock of its own: work is added, marks are put behind it."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.waits = 0

    def work(self, ms: float) -> None:
        self.ms += ms

    def mark(self) -> QueueMark:
        return QueueMark(self, self.ms)


class QueueMark:
    def __init__(self, queue: Queue, at_ms: float) -> None:
        self._queue, self.at_ms, self._come = queue, at_ms, False

    def wait(self) -> None:
        self._queue.waits += 1

    def ms_since(self, earlier: QueueMark) -> float:
        return self.at_ms - earlier.at_ms


def test_phases_are_read_with_one_wait_and_lie_end_to_end() -> None:
    queue = Queue()
    clock = LaneClock(mark=queue.mark)
    clock.add("prefill", 5.0)
    for phase, ms in (("draft", 1.0), ("verify", 20.0), ("accept", 0.5), ("commit", 2.0)):
        with clock.span(phase):
            queue.work(ms)
        queue.work(100.0)  # between two phases: nobody's
    assert queue.waits == 0
    spans = clock.take()
    assert queue.waits == 1
    assert [(span.phase, span.start_ms, span.duration_ms) for span in spans] == [
        ("prefill", 0.0, 5.0),
        ("draft", 5.0, 1.0),
        ("verify", 6.0, 20.0),
        ("accept", 26.0, 0.5),
        ("commit", 26.5, 2.0),
    ]
    assert clock.elapsed_ms == 28.5
    assert (clock.take(), queue.waits) == ((), 1)


def test_asking_for_the_time_so_far_loses_no_phase() -> None:
    queue = Queue()
    clock = LaneClock(mark=queue.mark)
    with clock.span("draft"):
        queue.work(3.0)
    assert clock.elapsed_ms == 3.0
    with clock.span("verify"):
        queue.work(4.0)
    assert [span.phase for span in clock.take()] == ["draft", "verify"]
    assert clock.elapsed_ms == 7.0


def test_on_a_processor_the_hosts_clock_measures() -> None:
    waits: list[str] = []
    clock = clock_of(torch.device("cpu"), lambda: waits.append("wait"))
    with clock.span("verify"):
        pass
    (span,) = clock.take()
    assert span.duration_ms >= 0.0
    assert waits == ["wait", "wait"]


def test_a_phase_that_fails_is_not_on_the_clock() -> None:
    queue = Queue()
    for clock in (LaneClock(mark=queue.mark), LaneClock()):
        with pytest.raises(RuntimeError, match="broken"), clock.span("verify"):
            raise RuntimeError("broken")
        assert clock.take() == ()
