"""The rates of the machine that made a recording, fitted to its own target passes, and how well they tell the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.metrics import phase_ms, speedup, step_ms
from explorer.roofline import Hardware, priced, size_of, workload
from explorer.roofline import speedup as predicted_speedup
from explorer.trace import Trace

FASTEST_TFLOP_S = 1e5
"""Where wider passes took no longer at all."""
MANY_PASSES = 8
"""Passes of a width from which their spread says something."""
UNQUIET = 1.6
"""A spread from which something else must have used the machine."""
THIS_MACHINE = "recording machine (measured)"
Numbers = NDArray[np.float64]


def together(traces: Sequence[Trace]) -> list[Trace]:
    """Those that were timed in the comparison itself: a lane added to a recording may come from another machine."""
    return [trace for trace in traces if trace.branch is None or not trace.branch.apart]


def fitted(traces: Sequence[Trace]) -> Hardware | None:
    """Bandwidth, rate and overhead that the recording machine reached; None where its passes cannot tell.

    Times are joined by a sum, since that is what was seen: a pass takes a fixed time, and so much more a row. The
    fixed time is moving the weights at the bandwidth that was timed when the model was loaded, and overhead; without
    that, or where passes were faster than it, all of it counts as bandwidth.
    """
    moved, worked, times, counts = _passes(traces)
    if len(times) < 2:
        return None
    steady, slope = _positive(np.stack([moved, worked], axis=1), times, times / np.sqrt(counts))
    if steady <= 0.0:
        return None
    reached, rate = 1e-6 / steady, min(1e-9 / slope, FASTEST_TFLOP_S) if slope > 0.0 else FASTEST_TFLOP_S
    known, size = traces[0].model.memory_gb_s, size_of(traces[0])
    if known is None or known <= reached:
        return Hardware(THIS_MACHINE, reached, rate, overlap=False, source="fitted to this recording's target passes")
    overhead = float(np.min(moved)) * (steady - 1e-6 / known) / (size.layers + 1)
    source = "memory timed when the model was loaded, the rest fitted to this recording's target passes"
    return Hardware(THIS_MACHINE, known, rate, None, 1e3 * overhead, overlap=False, source=source)


def _passes(traces: Sequence[Trace]) -> tuple[Numbers, ...]:
    """Median bytes, operations and milliseconds of the target passes of each width, and how many passes had it.

    Medians, since a slow moment moves none.
    """
    by_rows: dict[int, list[tuple[float, float, float]]] = {}
    for trace in traces:
        work = workload(trace)
        known = priced(work, Hardware("any", 1.0, 1.0), size_of(trace))
        each = zip(work.rows, known["target_bytes"], known["target_operations"], trace.steps, strict=True)
        for rows, moved, worked, step in each:
            if (time := phase_ms(step, "verify")) > 0.0:
                by_rows.setdefault(rows, []).append((moved, worked, time))
    medians = np.array([[*np.median(values, axis=0), len(values)] for values in by_rows.values()])
    return tuple(medians.reshape(-1, 4).T)


def unrest(traces: Sequence[Trace]) -> float:
    """How unevenly passes of the same width took their time: the 90th percentile over the 10th, the typical width's."""
    by_rows: dict[int, list[float]] = {}
    for trace in traces:
        for rows, step in zip(workload(trace).rows, trace.steps, strict=True):
            if (time := phase_ms(step, "verify")) > 0.0:
                by_rows.setdefault(rows, []).append(time)
    many = [times for times in by_rows.values() if len(times) >= MANY_PASSES]
    spreads = [float(np.quantile(times, 0.9) / np.quantile(times, 0.1)) for times in many]
    return float(np.median(spreads)) if spreads else 1.0


def disturbed(traces: Sequence[Trace]) -> str:
    """A sentence where the machine was not quiet, else nothing."""
    spread = unrest(traces)
    if spread < UNQUIET:
        return ""
    return (
        f"The machine was not quiet during this run: passes of the same width took up to {spread:.1f} times as long as "
        "others, so milliseconds and speed-ups are rough; counts are not touched."
    )


def _positive(columns: Numbers, wanted: Numbers, scale: Numbers) -> tuple[float, float]:
    """Least squares of the relative errors with two factors that must not be negative."""
    a, y = columns / scale[:, None], wanted / scale
    first, second = np.linalg.lstsq(a, y, rcond=None)[0]
    if first < 0.0:
        first, second = 0.0, max(float(a[:, 1] @ y / (a[:, 1] @ a[:, 1])), 0.0)
    elif second < 0.0:
        first, second = max(float(a[:, 0] @ y / (a[:, 0] @ a[:, 0])), 0.0), 0.0
    return float(first), float(second)


@dataclass(frozen=True)
class Check:
    """What was measured of a lane, and what the model says of it. None: there is nothing to compare."""

    target_ms: float
    said_target_ms: float
    draft_ms: float | None
    said_draft_ms: float | None
    rest_ms: float
    """Of a step, outside of the passes: the model knows nothing of it."""
    speedup: float | None
    said_speedup: float | None


def checked(trace: Trace, plain: Trace | None, machine: Hardware) -> Check:
    """A lane's measured times beside the model's: medians over its steps, as the rates were fitted to medians."""
    work, passes = workload(trace), workload(trace).draft_passes
    said = priced(work, machine, size_of(trace))
    verify, draft = ([phase_ms(step, phase) for step in trace.steps] for phase in ("verify", "draft"))
    drafting = [time for time, step in zip(draft, trace.steps, strict=True) if len(step.nodes) > 1]
    in_passes = [time + (each if passes else 0.0) for time, each in zip(verify, draft, strict=True)]
    return Check(
        target_ms=float(np.median(verify)),
        said_target_ms=float(np.median(said["target_ms"])),
        draft_ms=float(np.median(drafting)) * len(drafting) / passes if passes and drafting else None,
        said_draft_ms=float(said["draft_ms"]) if passes and drafting else None,
        rest_ms=float(np.median([step_ms(step) for step in trace.steps] - np.array(in_passes))),
        speedup=None if plain is None else speedup(plain, trace),
        said_speedup=predicted_speedup(work, machine, size_of(trace)),
    )
