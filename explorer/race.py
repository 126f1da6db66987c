"""Lanes side by side on one device: each step is timed alone, and the lane that is furthest behind goes next."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from explorer.backlog import Backlog
from explorer.decode import Lane, Turn
from explorer.events import Event, LaneEnded, LaneHeader, Prefilled, Preparing, Stepped
from explorer.metrics import totals
from explorer.record import StepWriter
from explorer.target import Prefill, TargetModel
from explorer.trace import OutputToken, Prompt, Span, Step, StopReason, Trace
from explorer.trace import Prefill as PrefillRecord

Guard = Callable[[], AbstractContextManager[object]]
"""Makes a context that keeps other work on the device out of a measured piece."""


@dataclass
class Runner:
    """A lane in a race, and what was recorded of it."""

    lane: Lane
    header: LaneHeader
    prompt: Prompt
    writer: StepWriter
    turns: Iterator[Turn] = field(init=False)
    tokens: list[OutputToken] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    prefill: tuple[Span, ...] = ()
    ended: bool = False
    given: tuple[int, ...] = ()
    """The beginning of the output that a branch goes on from: part of what its prefill reads."""
    forced: int = 0
    """So many of these, the last ones, a viewer chose."""

    def start(self, prefill: Prefill, shared_ms: float) -> Prefilled:
        """The lane's first token."""
        choice = self.lane.start(prefill, shared_ms)
        given = self.writer.given(self.given, self.forced)
        first = self.writer.first_token(choice.token_id, self.lane.stop_reason is not None)
        self.tokens.extend((*given, first))
        self.prefill = self.lane.clock.take()
        self.turns = self.lane.turns()
        return Prefilled(self.header.lane, first, self.prefill, given)

    def advance(self, backlog: Backlog[Runner]) -> None:
        """One turn, which is to be written down later; nothing at the lane's end."""
        turn = next(self.turns, None)
        if turn is not None:
            last = self.lane.stop_reason is not None
            backlog.add(self, self.writer, turn, self.lane.method.payload(), last=last)

    def stepped(self, step: Step, tokens: tuple[OutputToken, ...]) -> Stepped:
        """A turn has been written down."""
        self.steps.append(step)
        self.tokens.extend(tokens)
        return Stepped(self.header.lane, step, tokens)

    def end(self, reason: StopReason) -> LaneEnded:
        """Close the lane's trace."""
        self.ended = True
        return LaneEnded(self.trace(reason))

    def trace(self, reason: StopReason, error: str | None = None) -> Trace:
        """All that was recorded."""
        header = self.header
        return Trace(
            lane=header.lane,
            method=header.method,
            model=header.model,
            drafter=header.drafter,
            params=header.params,
            branch=header.branch,
            prompt=self.prompt,
            tokens=tuple(self.tokens),
            steps=tuple(self.steps),
            prefill=PrefillRecord(spans=self.prefill),
            stop_reason=reason,
            error=error,
            totals=totals(self.steps, self.tokens, self.prefill, self.lane.draft_passes),
            subtitle=header.subtitle,
            title=header.title,
            lossless=header.lossless,
        )


@dataclass(frozen=True)
class SharedPrefill:
    """The prompt's pass for all lanes, and what it took."""

    prefill: Prefill
    duration_ms: float


def prefill_all(
    target: TargetModel,
    token_ids: Sequence[int],
    taps: frozenset[str],
    *,
    stopped: Callable[[], bool],
    guard: Guard = nullcontext,
    now: Callable[[], float] = time.perf_counter,
) -> Generator[Preparing, None, SharedPrefill | None]:
    """Run the prompt once for all lanes, chunk by chunk. Returns None when stopped between two chunks."""
    chunks = target.prefill_chunks(token_ids, taps=taps)
    duration_ms = 0.0
    while not stopped():
        with guard():
            begin = now()
            try:
                share = next(chunks)
            except StopIteration as end:
                return SharedPrefill(end.value, duration_ms + (now() - begin) * 1000.0)
            target.synchronize()
            duration_ms += (now() - begin) * 1000.0
        yield Preparing(f"Reading the prompt ({len(token_ids)} tokens).", share)
    return None


def race(
    runners: Sequence[Runner],
    shared: SharedPrefill,
    *,
    stopped: Callable[[], bool],
    guard: Guard = nullcontext,
) -> Iterator[Event]:
    """Run all lanes to their ends. Every measured piece of work happens inside `guard()`.

    What a viewer sees is a race at true relative speed: a lane's clock holds its own measured phases only,
    the shared prefill and its drafter's prefill included.
    """
    for runner in runners:
        if stopped():
            break
        with guard():
            started = runner.start(shared.prefill, shared.duration_ms)
        yield started
        if runner.lane.stop_reason is not None:
            yield runner.end(runner.lane.stop_reason)
    active = [runner for runner in runners if runner.tokens and not runner.ended]
    backlog: Backlog[Runner] = Backlog()
    try:
        while active and not stopped():
            behind = min(active, key=lambda runner: runner.lane.clock.elapsed_ms)
            with guard():
                behind.advance(backlog)
            ends = behind.lane.stop_reason
            if ends is not None or backlog.due:
                yield from _written(backlog, guard)
            if ends is not None:
                yield behind.end(ends)
                active.remove(behind)
    except Exception:
        yield from _written(backlog, guard)  # what came before a lane's failure is part of its trace
        raise
    yield from _written(backlog, guard)
    for runner in runners:
        if runner.tokens and not runner.ended:
            yield runner.end("cancelled")


def _written(backlog: Backlog[Runner], guard: Guard) -> Iterator[Stepped]:
    """The turns of the backlog as events. Writing is nobody's decode time, but no other lane's either."""
    events: list[Stepped] = []
    try:
        with guard():
            for runner, step, tokens in backlog.write():
                events.append(runner.stepped(step, tokens))
    finally:
        yield from (replace(event, more=True) for event in events[:-1])
        yield from events[-1:]
