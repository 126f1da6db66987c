"""One run decodes at a time per device: first in, first out, and everybody is told their place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class DeviceQueue:
    """A fair lock that tells how many are before you."""

    def __init__(self) -> None:
        self._tickets: list[object] = []
        self._changed = threading.Condition()

    def enter(self) -> object:
        """Take a ticket; it must be handed back with `leave`."""
        ticket = object()
        with self._changed:
            self._tickets.append(ticket)
        return ticket

    def leave(self, ticket: object) -> None:
        """Hand a ticket back, at whatever place. A second time does nothing."""
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
            self._changed.notify_all()

    def place(self, ticket: object) -> int:
        """How many are before this ticket; 0 means that it is your turn."""
        with self._changed:
            return self._tickets.index(ticket)

    def wait(self, ticket: object, seconds: float) -> int:
        """Wait until the places change, at most that long; then `place`."""
        with self._changed:
            if self._tickets.index(ticket) > 0:
                self._changed.wait(seconds)
            return self._tickets.index(ticket)


class StepLock:
    """Keeps figure building out of timed steps. Fair: whoever waited while a step ran goes before the next."""

    def __init__(self) -> None:
        self._queue = DeviceQueue()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock for a step, or for building figures."""
        ticket = self._queue.enter()
        try:
            while self._queue.wait(ticket, 1.0) > 0:
                pass
            yield
        finally:
            self._queue.leave(ticket)
