"""The line in front of the device: first in, first out, everybody knows their place; and the lock between steps."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.queueing import DeviceQueue, StepLock

WAIT = 10.0
"""Seconds after which a test gives up; nothing here depends on being fast."""


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30))
def test_places_are_those_of_a_list(moves: list[tuple[bool, int]]) -> None:
    """Entering and leaving at any place, against a plain list."""
    queue, line, gone = DeviceQueue(), [], []
    for enters, place in moves:
        if enters:
            line.append(queue.enter())
        elif line:
            gone.append(line.pop(place % len(line)))
            queue.leave(gone[-1])
        for ticket in gone[-2:]:
            queue.leave(ticket)  # a second time does nothing
        assert [queue.place(ticket) for ticket in line] == list(range(len(line)))


def test_waiting_returns_when_the_place_changes() -> None:
    queue = DeviceQueue()
    first, second, third = queue.enter(), queue.enter(), queue.enter()
    places: list[int] = []
    waiter = threading.Thread(target=lambda: places.append(queue.wait(third, WAIT)))
    waiter.start()
    while waiter.is_alive():  # the first call may come before the thread has begun to wait
        queue.leave(second)
        waiter.join(0.01)
    assert places == [1]
    assert queue.wait(first, 0.0) == 0


def test_the_first_never_waits() -> None:
    queue = DeviceQueue()
    assert queue.wait(queue.enter(), WAIT) == 0


def test_a_ticket_that_was_handed_back_has_no_place() -> None:
    queue = DeviceQueue()
    ticket = queue.enter()
    queue.leave(ticket)
    with pytest.raises(ValueError, match="not in list"):
        queue.place(ticket)


def test_only_one_holds_the_step_lock() -> None:
    lock, inside, most = StepLock(), [0], [0]

    def work() -> None:
        for _ in range(20):
            with lock.hold():
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert most == [1]
    assert inside == [0]
    assert not any(thread.is_alive() for thread in threads)


def test_whoever_waited_during_a_step_goes_before_the_next_step() -> None:
    """A loop that takes the lock again at once cannot keep a figure out."""
    lock, order = StepLock(), []
    waits = threading.Event()

    def figure() -> None:
        waits.set()
        with lock.hold():
            order.append("figure")

    thread = threading.Thread(target=figure)
    with lock.hold():
        thread.start()
        waits.wait(WAIT)
        while len(lock._queue._tickets) < 2:
            threading.Event().wait(0.001)
        order.append("step 1")
    with lock.hold():
        order.append("step 2")
    thread.join(WAIT)
    assert order == ["step 1", "figure", "step 2"]


def test_the_lock_is_free_again_after_an_error() -> None:
    lock = StepLock()
    with pytest.raises(KeyError), lock.hold():
        raise KeyError("x")
    with lock.hold():
        assert len(lock._queue._tickets) == 1
    assert lock._queue._tickets == []
