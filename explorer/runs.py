"""Runs in memory: what each lane has recorded so far, for the figures that a viewer asks for."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from explorer.events import (
    Checked,
    CodeLine,
    Ended,
    Event,
    Extended,
    LaneEnded,
    LaneHeader,
    Prefilled,
    Preparing,
    Queued,
    Started,
    Stepped,
)
from explorer.trace import GIVEN, Comparison, LosslessCheck, OutputToken, Span, Step, Trace


@dataclass
class LaneRecord:
    """One lane so far."""

    header: LaneHeader
    prefill: tuple[Span, ...] = ()
    tokens: list[OutputToken] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    trace: Trace | None = None
    """Set when the lane has ended."""


@dataclass
class Run:
    """A comparison so far: live or recorded. Fold events in with `apply`."""

    id: str
    recorded: bool = False
    state: str = "queued"
    """queued, preparing, running, then recorded, done, cancelled or error."""
    message: str = ""
    fraction: float | None = None
    prompt: str = ""
    settings: str = ""
    max_new_tokens: int = 0
    lanes: dict[str, LaneRecord] = field(default_factory=dict)
    lossless: dict[str, LosslessCheck] = field(default_factory=dict)
    comparison: Comparison | None = None
    continues: str = ""
    """Id of the run that everybody may see and that this one is a copy of, made to be extended."""

    @property
    def over(self) -> bool:
        """Does nothing decode in it any more?"""
        return self.state in ("recorded", "done", "cancelled", "error")

    @property
    def step_count(self) -> int:
        """Steps of all lanes so far."""
        return sum(len(lane.steps) for lane in self.lanes.values())

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        match event:
            case Queued():
                self.state = "queued"
                self.message = f"Waiting for the model: place {event.place} in line."
            case Preparing():
                self.state, self.message, self.fraction = "preparing", event.message, event.fraction
            case Started():
                self.state, self.message, self.fraction = "preparing", "Reading the prompt.", None
                self.prompt, self.settings = event.prompt, event.settings
                self.max_new_tokens = event.max_new_tokens
                self.lanes = {header.lane: LaneRecord(header) for header in event.headers}
            case Extended():
                self.state, self.message, self.fraction = "preparing", "Reading the prompt.", None
                # another dict: figures may be going through the lanes in another thread
                self.lanes = {**self.lanes, event.header.lane: LaneRecord(event.header)}
            case Prefilled():
                self.state, self.message, self.fraction = "running", "", None
                self.lanes[event.lane].prefill = event.spans
                self.lanes[event.lane].tokens.extend((*event.given, event.token))
            case Stepped():
                self.lanes[event.lane].steps.append(event.step)
                self.lanes[event.lane].tokens.extend(event.tokens)
            case LaneEnded():
                self.lanes[event.trace.lane].trace = event.trace
            case Checked():
                self.lossless = dict(event.lossless)
            case Ended():
                self.state = "recorded" if self.recorded and event.state == "done" else event.state
                self.message, self.comparison = event.message, event.comparison


class RunStore:
    """The last runs by unguessable id; the oldest are dropped. Safe to use from several threads.

    A step of a tree of 25 nodes takes about 0.1 MB, so the steps that are held are bounded, not the runs alone.
    """

    def __init__(self, max_runs: int = 64, max_steps: int = 8000) -> None:
        self._max_runs, self._max_steps = max_runs, max_steps
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._kept: set[str] = set()
        self._lock = threading.Lock()

    def new(self, run_id: str | None = None, recorded: bool = False) -> Run:
        """A fresh run. A fixed `run_id` is for recordings that everybody may see; these are never dropped."""
        run = Run(id=run_id or secrets.token_urlsafe(18), recorded=recorded)
        with self._lock:
            self._runs[run.id] = run
            if run_id is not None:
                self._kept.add(run_id)
            self._drop_oldest(run.id)
        return run

    def drop(self, run_id: str) -> None:
        """Forget a run that came to nothing, so that it pushes no other one out."""
        with self._lock:
            if run_id not in self._kept:
                self._runs.pop(run_id, None)

    def shared(self, run_id: str) -> bool:
        """May everybody see this run? Then nobody may change it."""
        with self._lock:
            return run_id in self._kept

    def _drop_oldest(self, newest: str) -> None:
        sizes = {key: run.step_count for key, run in self._runs.items() if key not in self._kept}
        for key in list(sizes):
            if key == newest or (len(sizes) <= self._max_runs and sum(sizes.values()) <= self._max_steps):
                return
            del self._runs[key], sizes[key]

    def get(self, run_id: object) -> Run | None:
        """The run, or None where no such run is held."""
        with self._lock:
            run = self._runs.get(run_id) if isinstance(run_id, str) else None
            if run is not None:
                self._runs.move_to_end(run.id)
            return run


Pseudocode = Callable[[str, dict[str, Any]], tuple[CodeLine, ...]]
"""A method's name and the parameters of a trace, to the lines."""


def no_code(method: str, params: dict[str, Any]) -> tuple[CodeLine, ...]:
    """For who knows no methods."""
    return ()


def events_of(
    comparison: Comparison, titles: dict[str, str], settings: str, code: Pseudocode = no_code
) -> Iterator[Event]:
    """A recorded comparison as the events that a live run would have sent.

    `titles` by method name; a method that is not known keeps its name.
    """
    headers = tuple(_header(trace, titles, code) for trace in comparison.lanes)
    longest = max(trace.totals.output_tokens for trace in comparison.lanes)
    first = comparison.lanes[0]
    typed = getattr(first.prompt, "typed", None)  # a file may hold anything here, and in params
    budget = first.params.get("max_new_tokens")
    yield Started(
        headers,
        typed if isinstance(typed, str) else first.prompt.text,
        budget if isinstance(budget, int) and 0 < budget < 10**6 else longest,
        settings,
    )
    for trace in comparison.lanes:
        given = tuple(token for token in trace.tokens if token.source in GIVEN)
        if len(given) < len(trace.tokens):
            yield Prefilled(trace.lane, trace.tokens[len(given)], trace.prefill.spans, given)
        by_step: dict[int | None, list[OutputToken]] = {}
        for token in trace.tokens:
            by_step.setdefault(token.step, []).append(token)
        for step in trace.steps:
            yield Stepped(trace.lane, step, tuple(by_step.get(step.index, ())))
        yield LaneEnded(trace)
    yield Checked(comparison.lossless)
    yield Ended("done", "", comparison)


def _header(trace: Trace, titles: dict[str, str], code: Pseudocode) -> LaneHeader:
    known = titles.get(trace.method, trace.method)
    lossless = getattr(trace, "lossless", True) is not False  # older files have no lossy lanes
    recorded = getattr(trace, "title", None)
    title = recorded[:40] if isinstance(recorded, str) and recorded.startswith(known) else known
    subtitle = str(getattr(trace, "subtitle", "") or "")
    return LaneHeader(
        trace.lane,
        trace.method,
        title,
        subtitle,
        lossless,
        trace.params,
        trace.model,
        trace.drafter,
        code(trace.method, trace.params),
        trace.branch,
    )
