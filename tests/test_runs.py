"""Runs in memory: events folded in give back what they told; ids cannot be guessed; old runs make room."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.events import Ended, Event, Preparing, Queued, Stepped
from explorer.requests import CompareRequest, LaneRequest
from explorer.runs import Run, RunStore, events_of
from explorer.session import Studio
from tests.traces import TITLES, make_comparison, make_events


def fold(events: list[Event], recorded: bool = False) -> Run:
    run = Run(id="x", recorded=recorded)
    for event in events:
        run.apply(event)
    return run


def test_a_recording_as_events_gives_the_recording_back() -> None:
    comparison = make_comparison()
    run = fold(make_events(), recorded=True)
    assert (run.state, run.comparison, run.lossless) == ("recorded", comparison, comparison.lossless)
    assert list(run.lanes) == [trace.lane for trace in comparison.lanes]
    for trace in comparison.lanes:
        record = run.lanes[trace.lane]
        assert (tuple(record.steps), tuple(record.tokens), record.trace) == (trace.steps, trace.tokens, trace)
        assert record.prefill == trace.prefill.spans
        assert (record.header.title, record.header.lossless) == (TITLES[trace.method], True)


def test_a_live_run_folds_to_what_its_traces_hold(studio: Studio) -> None:
    request = CompareRequest(
        prompt="the rain", lanes=[LaneRequest(method="medusa"), LaneRequest(method="eagle")], max_new_tokens=9
    )
    run = Run(id="x")
    states = []
    for event in studio.compare(request, threading.Event()):
        run.apply(event)
        states.append(run.state)
    assert run.state == "done"
    assert [state for place, state in enumerate(states) if states[place - 1 : place] != [state]][-2:] == [
        "running",
        "done",
    ]
    assert run.comparison is not None
    for trace in run.comparison.lanes:
        record = run.lanes[trace.lane]
        assert (tuple(record.steps), tuple(record.tokens), record.trace) == (trace.steps, trace.tokens, trace)
    assert (run.prompt, run.max_new_tokens) == ("the rain", 9)


@given(end=st.integers(0, 60))
def test_a_run_may_be_read_at_any_moment(end: int) -> None:
    """After any number of events tokens and steps fit together."""
    run = fold(make_events()[:end])
    for record in run.lanes.values():
        assert len(record.tokens) == bool(record.tokens) + sum(len(step.committed) for step in record.steps)
        assert [step.index for step in record.steps] == list(range(len(record.steps)))


def test_states_before_the_first_step() -> None:
    run = fold([Queued(2)])
    assert (run.state, run.message) == ("queued", "Waiting for the model: place 2 in line.")
    run.apply(Preparing("Loading the model.", 0.4))
    assert (run.state, run.message, run.fraction) == ("preparing", "Loading the model.", 0.4)
    run.apply(Ended("error", "No network.", None))
    assert (run.state, run.message, run.comparison) == ("error", "No network.", None)


def test_a_method_of_another_program_keeps_its_name() -> None:
    comparison = make_comparison()
    strange = comparison.lanes[0].model_copy(update={"method": "of-tomorrow", "lane": "of-tomorrow"})
    run = fold(list(events_of(comparison.model_copy(update={"lanes": (strange,)}), TITLES, "")))
    assert run.lanes["of-tomorrow"].header.title == "of-tomorrow"


def test_ids_are_long_and_never_the_same() -> None:
    store = RunStore(max_runs=200)
    ids = {store.new().id for _ in range(150)}
    assert len(ids) == 150
    assert min(map(len, ids)) >= 24


def test_the_run_that_was_not_asked_for_longest_makes_room() -> None:
    store = RunStore(max_runs=3)
    first, second, third = (store.new() for _ in range(3))
    assert store.get(first.id) is first
    fourth = store.new()
    assert store.get(second.id) is None
    assert [store.get(run.id) for run in (first, third, fourth)] == [first, third, fourth]


def test_long_runs_make_room_sooner_and_recordings_for_all_never_go() -> None:
    store = RunStore(max_runs=50, max_steps=100)
    everybodys = store.new("example", recorded=True)
    runs = []
    for _ in range(6):
        for event in make_events():
            everybodys.apply(event)
        runs.append(store.new())
        for event in make_events():
            runs[-1].apply(event)
    held = [run for run in runs if store.get(run.id) is run]
    assert held == runs[-len(held) :]
    assert 1 <= len(held) < 6
    assert sum(run.step_count for run in held[:-1]) <= 100
    assert store.get("example") is everybodys


@pytest.mark.parametrize("run_id", ["", "nothing", None, 5, 2.5, [], {}, ("a",), b"x", "x" * 100_000])
def test_what_is_no_id_finds_nothing(run_id: Any) -> None:
    assert RunStore().get(run_id) is None


def test_many_threads_may_use_the_store() -> None:
    store, failures = RunStore(max_runs=8), []

    def work() -> None:
        for _ in range(200):
            run = store.new()
            found = store.get(run.id)
            if found is not None and found is not run:
                failures.append(run.id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert len(store._runs) == 8


def test_events_of_a_run_are_told_apart_by_lane() -> None:
    lanes = {event.lane for event in make_events() if isinstance(event, Stepped)}
    assert lanes == {"autoregressive", "medusa", "eagle", "lookahead"}
