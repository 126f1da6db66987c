"""Lanes side by side: who is furthest behind goes next, a stop ends within one step, what was recorded stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from explorer.decode import Lane
from explorer.errors import ExplorerError
from explorer.events import LaneEnded, LaneHeader, Prefilled, Preparing, Stepped
from explorer.methods import find_method
from explorer.race import Runner, SharedPrefill, prefill_all, race
from explorer.record import StepWriter
from explorer.recorder import LaneClock
from explorer.sampling import SamplingSettings
from explorer.target import TAP_LAST, tap_hidden
from explorer.trace import Prompt, Span
from tests.lanes import ALL_NAMES, Bench

TAPS = frozenset({TAP_LAST, *(tap_hidden(layer) for layer in (1, 2, 3))})


class FakeTime:
    """A clock for one lane: each reading comes `seconds` after the one before."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.at = seconds, 0.0

    def __call__(self) -> float:
        self.at += self.seconds
        return self.at


def runner(
    bench: Bench, name: str, lane_id: str, seconds: float, budget: int = 10, params: dict[str, Any] | None = None
) -> Runner:
    """A lane whose every phase takes `seconds`."""
    method = find_method(name)
    lane = Lane(
        lane_id,
        bench.target,
        method,
        method.Params(**(params or {})),
        sampling=SamplingSettings(),
        max_new_tokens=budget,
        drafter=bench.drafter(method),
        clock=LaneClock(now=FakeTime(seconds)),
    )
    header = LaneHeader(lane_id, name, name, "", True, {}, bench.target.info, None)
    prompt = Prompt(text="x", template_applied=False, token_ids=tuple(IDS))
    return Runner(lane, header, prompt, StepWriter(bench.target.texts))


def ended_ms(spans: Sequence[Span]) -> float:
    return spans[-1].start_ms + spans[-1].duration_ms


IDS = [40, 50, 60, 40, 50, 60]


def shared(bench: Bench, duration_ms: float = 5.0) -> SharedPrefill:
    return SharedPrefill(bench.target.prefill(IDS, taps=TAPS), duration_ms)


def never() -> bool:
    return False


def after(count: int) -> Callable[[], bool]:
    """True from the call after `count` calls on."""
    calls = [0]

    def stopped() -> bool:
        calls[0] += 1
        return calls[0] > count

    return stopped


@dataclass
class Guarded:
    """A guard that knows whether it is held, and how often it was."""

    held: bool = False
    times: int = 0
    log: list[str] = field(default_factory=list)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        assert not self.held
        self.held, self.times = True, self.times + 1
        yield
        self.held = False


def test_the_lane_that_is_furthest_behind_goes_next(toy: Bench) -> None:
    speeds = {"slow": 0.007, "fast": 0.001, "middle": 0.003}
    runners = [runner(toy, "autoregressive", lane, seconds) for lane, seconds in speeds.items()]
    steps: list[str] = []
    ended: set[str] = set()
    at: dict[str, float] = {}
    for event in race(runners, shared(toy), stopped=never):
        if isinstance(event, Prefilled):
            at[event.lane] = ended_ms(event.spans)
        if isinstance(event, Stepped):
            running = {lane: elapsed for lane, elapsed in at.items() if lane not in ended}
            assert running[event.lane] == min(running.values())
            steps.append(event.lane)
            at[event.lane] = ended_ms(event.step.spans)
        if isinstance(event, LaneEnded):
            ended.add(event.trace.lane)
    assert ended == set(speeds)
    assert steps.count("fast") == steps.count("slow") == 9
    assert steps.index("slow", 1) > 2
    assert max(place for place, lane in enumerate(steps) if lane == "fast") < max(
        place for place, lane in enumerate(steps) if lane == "slow"
    )


def test_a_lanes_clock_holds_the_shared_prefill_and_its_own_phases(toy: Bench) -> None:
    runners = [runner(toy, name, name, 0.002) for name in ALL_NAMES]
    traces = {
        event.trace.lane: event.trace
        for event in race(runners, shared(toy, 40.0), stopped=never)
        if isinstance(event, LaneEnded)
    }
    for name, trace in traces.items():
        spans = [*trace.prefill.spans, *(span for step in trace.steps for span in step.spans)]
        assert spans[0].duration_ms == 40.0
        assert all(span.duration_ms == pytest.approx(2.0) for span in spans[1:])
        assert len(trace.prefill.spans) == (3 if find_method(name).needs else 2)
        assert spans[-1].start_ms + 2.0 == pytest.approx(40.0 + 2.0 * (len(spans) - 1))


def test_every_lane_decodes_the_same_in_a_race_as_alone(toy: Bench) -> None:
    runners = [runner(toy, name, name, 0.001) for name in ALL_NAMES]
    ended = [event.trace for event in race(runners, shared(toy), stopped=never) if isinstance(event, LaneEnded)]
    assert len(ended) == len(ALL_NAMES)
    for trace in ended:
        assert [token.id for token in trace.tokens] == toy.expected(IDS, 10)
        assert trace.stop_reason == "length"


def test_events_come_in_order_and_tell_all_that_the_traces_hold(toy: Bench) -> None:
    runners = [runner(toy, name, name, 0.001) for name in ALL_NAMES]
    events = list(race(runners, shared(toy), stopped=never))
    assert [type(event) for event in events[: len(ALL_NAMES)]] == [Prefilled] * len(ALL_NAMES)
    for name in ALL_NAMES:
        own = [event for event in events if getattr(event, "lane", None) == name]
        trace = next(event.trace for event in events if isinstance(event, LaneEnded) and event.trace.lane == name)
        assert [event.step for event in own if isinstance(event, Stepped)] == list(trace.steps)
        told = [own[0].token] + [token for event in own[1:] for token in event.tokens]  # type: ignore[union-attr]
        assert told == list(trace.tokens)
        place = events.index(next(event for event in events if isinstance(event, LaneEnded) and event.trace is trace))
        assert all(events.index(event) < place for event in own)


def test_measured_work_is_guarded_and_nothing_is_told_under_the_guard(toy: Bench) -> None:
    guard = Guarded()
    runners = [runner(toy, name, name, 0.001) for name in ALL_NAMES]
    steps = written = 0
    before: object = None
    for event in race(runners, shared(toy), stopped=never, guard=guard):
        assert not guard.held
        steps += isinstance(event, Stepped)
        written += isinstance(event, Stepped) and not isinstance(before, Stepped)
        before = event
    # each start, each step, and at most once for each time that steps were written and for the end
    assert steps + len(runners) + written <= guard.times <= 2 * steps + len(runners) + 1


def test_steps_are_told_a_few_at_a_time_in_the_order_in_which_they_were_made(toy: Bench) -> None:
    """Read by their places on the lanes' clocks: the lane that was furthest behind made the next one."""
    runners = [runner(toy, name, name, 0.001) for name in ALL_NAMES]
    begins = [event.step.spans[0].start_ms for event in race(runners, shared(toy), stopped=never)
              if isinstance(event, Stepped)]  # fmt: skip
    assert begins == sorted(begins)


def test_a_step_says_whether_another_was_written_with_it(toy: Bench) -> None:
    events = list(race([runner(toy, "autoregressive", "one", 0.001)], shared(toy), stopped=never))
    followed = [after for event, after in itertools.pairwise(events) if isinstance(event, Stepped) and event.more]
    assert followed
    assert all(isinstance(event, Stepped) for event in followed)


def test_what_was_made_before_a_lane_failed_is_part_of_its_trace(toy: Bench) -> None:
    runners = [runner(toy, "autoregressive", lane, 0.001) for lane in ("well", "failing")]
    told: list[Stepped] = []

    def fail() -> None:
        raise ExplorerError("The machine is out of memory.")

    def run() -> None:
        for event in race(runners, shared(toy), stopped=never):
            if isinstance(event, Prefilled) and event.lane == "failing":
                turns = runners[1].turns
                runners[1].turns = itertools.chain(itertools.islice(turns, 2), iter(fail, 0))
            told.extend([event] if isinstance(event, Stepped) else [])

    with pytest.raises(ExplorerError, match="out of memory"):
        run()
    assert [event.lane for event in told].count("failing") == 2
    assert [event.step for event in told if event.lane == "failing"] == runners[1].steps


@pytest.mark.parametrize("made", [0, 1, 5, 16])
def test_a_stop_ends_within_one_step_and_keeps_what_was_recorded(made: int, toy: Bench) -> None:
    """`stopped` is asked once a lane at the start, then before every step: no step begins after it is true."""
    runners = [runner(toy, name, name, 0.001, budget=30) for name in ALL_NAMES]
    events = list(race(runners, shared(toy), stopped=after(len(ALL_NAMES) + made)))
    steps = [event for event in events if isinstance(event, Stepped)]
    assert len(steps) == made
    traces = [event.trace for event in events if isinstance(event, LaneEnded)]
    assert [trace.lane for trace in traces] == list(ALL_NAMES)
    for trace in traces:
        assert trace.stop_reason == "cancelled"
        assert list(trace.steps) == [event.step for event in steps if event.lane == trace.lane]
        assert trace.totals.output_tokens == len(trace.tokens) >= 1
        assert [token.id for token in trace.tokens] == toy.expected(IDS, 30)[: len(trace.tokens)]


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_stop_between_two_starts_keeps_the_lanes_that_began(calls: int, toy: Bench) -> None:
    runners = [runner(toy, name, name, 0.001) for name in ALL_NAMES]
    events = list(race(runners, shared(toy), stopped=after(calls)))
    assert [event.trace.lane for event in events if isinstance(event, LaneEnded)] == list(ALL_NAMES[:calls])
    assert not any(isinstance(event, Stepped) for event in events)


def test_a_budget_of_one_ends_with_the_prefill(toy: Bench) -> None:
    runners = [runner(toy, name, name, 0.001, budget=1) for name in ALL_NAMES]
    events = list(race(runners, shared(toy), stopped=never))
    assert [type(event) for event in events] == [Prefilled, LaneEnded] * len(ALL_NAMES)
    for event in events:
        if isinstance(event, LaneEnded):
            assert (event.trace.stop_reason, event.trace.steps, len(event.trace.tokens)) == ("length", (), 1)


def drain_prefill(
    bench: Bench, tokens: int, stopped: Callable[[], bool]
) -> tuple[list[Preparing], SharedPrefill | None]:
    events, pieces = [], prefill_all(bench.target, [40] * tokens, TAPS, stopped=stopped, now=FakeTime(0.5))
    while True:
        try:
            events.append(next(pieces))
        except StopIteration as end:
            return events, end.value


def test_a_prefill_tells_how_far_it_is(toy: Bench) -> None:
    events, done = drain_prefill(toy, 500, never)
    assert [event.fraction for event in events] == [0.256, 0.512, 0.768, 1.0]
    assert all("500 tokens" in event.message for event in events)
    assert done is not None
    assert done.prefill.cache.length == 500
    assert done.duration_ms == pytest.approx(500.0 * 5)  # four chunks and the last row's logits


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_stop_inside_a_long_prefill_ends_between_two_chunks(calls: int, toy: Bench) -> None:
    events, done = drain_prefill(toy, 900, after(calls))
    assert done is None
    assert len(events) == calls


def test_a_prefill_is_guarded_chunk_by_chunk(toy: Bench) -> None:
    guard = Guarded()
    for _ in prefill_all(toy.target, [40] * 300, TAPS, stopped=never, guard=guard):
        assert not guard.held
    assert guard.times == 4
