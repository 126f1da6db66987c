"""What a lane costs: recording, memory, one draft pass, and a hundred runs in a row."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

import psutil

from benchmarks.common import PROMPT, Json, decode, interleave, lane_of, missing, prompt_ids, record_turn, summary
from explorer.backlog import Backlog
from explorer.methods import METHODS
from explorer.record import StepWriter
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.shelf import Shelf

MANY_RUNS = 100


def each_lane(shelf: Shelf, tokens: int, rounds: int) -> list[Json]:
    """A row a method that can run here."""
    return [_lane(shelf, method.name, tokens, rounds) for method in METHODS if missing(shelf, method.name) is None]


def _lane(shelf: Shelf, name: str, tokens: int, rounds: int) -> Json:
    prompt = prompt_ids(shelf)
    shares: list[float] = []
    tasks: dict[str, Callable[[], float | None]] = {
        "off": lambda: _discard(decode(shelf, name, {}, prompt, tokens, record=False)),
        "on": lambda: shares.append(recording_share(shelf, name, prompt, tokens)),
    }
    seconds = interleave(tasks, rounds)
    lane = lane_of(shelf, name, {}, tokens)
    lane.start(shelf.target.prefill(prompt, taps=lane.taps), 0.0)
    draft_ms: list[float] = []
    for turn in lane.turns():
        draft_ms += [span.duration_ms for span in turn.spans if span.phase == "draft"]
    return {
        "method": name,
        "seconds": summary(seconds["off"]),
        "recording_share": summary(shares[1:]),
        "cache_bytes": cache_bytes(shelf, len(prompt) + tokens + lane.method_type.max_rows(lane.params)),
        "draft_step_ms": statistics.median(draft_ms) if draft_ms else 0.0,
        "draft_pass_ms": shelf.costs(lane.method_type.needs).draft_pass_ms,
        "draft_passes": lane.draft_passes,
    }


def recording_share(shelf: Shelf, name: str, prompt: list[int], tokens: int) -> float:
    """Time that recording took over decode time, in one and the same run: other work on the machine meets both."""
    lane = lane_of(shelf, name, {}, tokens)
    lane.start(shelf.target.prefill(prompt, taps=lane.taps), 0.0)
    lane.clock.take()
    writer, backlog = StepWriter(shelf.target.texts), Backlog[None]()
    decode_ms = recording_ms = 0.0
    for turn in lane.turns():
        begin = time.perf_counter()
        record_turn(lane, turn, writer, backlog)
        recording_ms += 1000.0 * (time.perf_counter() - begin)
        decode_ms += sum(span.duration_ms for span in turn.spans)
    return recording_ms / decode_ms


def _discard(lane: object) -> None:
    """Only the time counts."""


def cache_bytes(shelf: Shelf, positions: int) -> int:
    """Of a lane's keys and values."""
    cache = shelf.target.new_cache(positions)
    cache_rows = shelf.target.prefill([7]).cache.rows()
    return sum(row.nbytes // row.shape[-2] for row in cache_rows) * cache.capacity


def many_runs(studio: Studio, tokens: int, count: int = MANY_RUNS) -> Json:
    """Resident memory after the tenth and after the last of many runs in a row, all methods in each."""
    names = [method.name for method in METHODS if missing(studio.shelf, method.name) is None]
    process = psutil.Process()
    resident: list[int] = []
    for _ in range(count):
        request = CompareRequest(
            prompt=PROMPT, lanes=[LaneRequest(method=name) for name in names], max_new_tokens=tokens
        )
        for _event in studio.compare(request, threading.Event()):
            pass
        resident.append(int(process.memory_info().rss))
    tenth = resident[min(9, count - 1)]
    return {"runs": count, "tenth_bytes": tenth, "last_bytes": resident[-1], "growth": resident[-1] / tenth - 1.0}


def rows(results: list[Json]) -> list[list[object]]:
    """For the screen."""
    lines: list[list[object]] = [
        ["lane", "seconds", "recording", "least", "most", "cache MB", "draft step ms", "draft pass ms"]
    ]
    for each in results:
        share = each["recording_share"]
        lines.append([
            each["method"], each["seconds"]["median"], f"{share['median']:+.1%}", f"{share['least']:+.1%}",
            f"{share['most']:+.1%}", each["cache_bytes"] / 1e6, each["draft_step_ms"], each["draft_pass_ms"],
        ])  # fmt: skip
    return lines
