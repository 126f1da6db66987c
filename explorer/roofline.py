"""A cost model, not a measurement: the time that a recorded trace would take on other hardware or a larger target.

The roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): a pass takes the longer of moving its bytes and
doing its arithmetic, and a fixed overhead besides.

    pass_ms = overhead + max(bytes / bandwidth, operations / rate)
    target pass:  bytes = parameters * bytes_per_parameter + kv_bytes_per_position * (cached + rows)
                  operations = rows * (2 * parameters + 4 * layers * hidden_size * cached)
    draft pass:   bytes = read * bytes_per_parameter,  operations = rows * 2 * read,
                  read = drafter_parameters + the target's output head where the drafter shares it

Trees and acceptances are the trace's own. What is left out: kernels that reach no peak, activations, sampling, the
host; so published peaks give an upper bound, and the same machine's fitted rates tell how far the form holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.errors import ExplorerError
from explorer.passes import cached_before, pass_rows
from explorer.trace import Step, Trace

Amount = Any
"""A number, or an array of them: one a pass."""


@dataclass(frozen=True)
class Hardware:
    """Where the passes run. Rates must be positive."""

    name: str
    bandwidth_gb_s: float
    """Memory bandwidth, 10^9 bytes a second."""
    arithmetic_tflop_s: float
    """10^12 operations a second; a multiplication and an addition are two."""
    overhead_ms: float = 0.0
    """Per pass, of target or drafter."""
    source: str = ""
    """Who published the figures."""

    def __post_init__(self) -> None:
        if not (self.bandwidth_gb_s > 0 and self.arithmetic_tflop_s > 0 and self.overhead_ms >= 0):
            raise ExplorerError(
                "Bandwidth and arithmetic rate must be more than 0, and the overhead of a pass not negative."
            )

    @property
    def balance(self) -> float:
        """Operations that the hardware does in the time in which it moves a byte."""
        return self.arithmetic_tflop_s * 1e3 / self.bandwidth_gb_s


@dataclass(frozen=True)
class ModelSize:
    """The target that the trace is imagined on, and its drafter."""

    name: str
    parameters: float
    bytes_per_parameter: float
    layers: int = 0
    hidden_size: int = 0
    kv_bytes_per_position: float = 0.0
    """Keys and values of one position in all layers; 0 leaves the cache out."""
    drafter_parameters: float = 0.0
    """Read by one draft pass; 0 where drafting reads no weights."""
    head_parameters: float = 0.0
    """Of the output head, which is among `parameters`."""
    shares_head: bool = False
    """A draft pass reads the target's output head too."""

    def __post_init__(self) -> None:
        small = min(
            self.layers, self.hidden_size, self.kv_bytes_per_position, self.drafter_parameters, self.head_parameters
        )
        if not (self.parameters > 0 and self.bytes_per_parameter > 0 and small >= 0):
            raise ExplorerError("A model needs more than 0 parameters and bytes, and no size may be negative.")


PRESETS: tuple[Hardware, ...] = (
    Hardware("4-core laptop CPU", 51.2, 0.358, source="Intel ARK, Core i7-1165G7: 2 x DDR4-3200; 4 x 2.8 GHz x 32"),
    Hardware("Apple M2", 100.0, 3.6, source="Apple newsroom, 6 June 2022"),
    Hardware("NVIDIA L4", 300.0, 121.0, source="NVIDIA L4 data sheet, 16-bit, dense"),
    Hardware("GeForce RTX 3090", 936.0, 71.0, source="NVIDIA GA102 white paper, 16-bit with 32-bit sums, dense"),
    Hardware("NVIDIA A100 80 GB", 2039.0, 312.0, source="NVIDIA A100 data sheet, SXM, 16-bit, dense"),
    Hardware("NVIDIA H100", 3350.0, 989.4, source="NVIDIA H100 data sheet, SXM, 16-bit, dense"),
    Hardware("NVIDIA H200", 4800.0, 989.4, source="NVIDIA H200 data sheet, SXM, 16-bit, dense"),
)
"""Published peaks; 16-bit rates without sparsity where the hardware has matrix units, 32-bit elsewhere."""

SMALL = ModelSize("SmolLM2-135M", 134_515_008, 2, 30, 576, 30 * 2 * 3 * 64 * 2, head_parameters=49_152 * 576)
LARGE = ModelSize("Llama-3.1-8B", 8_030_261_248, 2, 32, 4096, 32 * 2 * 8 * 128 * 2, head_parameters=128_256 * 4096)
SIZES: tuple[ModelSize, ...] = (SMALL, LARGE)
"""Sizes from the models' own configurations, 16-bit weights."""

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
HEAD_SHARERS = frozenset({"medusa", "eagle"})
"""Methods whose drafters end in the target's output head. EAGLE-3 and draft models have their own."""


def known_size(trace: Trace) -> ModelSize | None:
    """The size in SIZES that the trace ran at."""
    return next((size for size in SIZES if size.parameters == trace.model.parameters), None)


def size_of(trace: Trace) -> ModelSize:
    """The size that the trace itself ran at. A trace holds parameters and number format only: of a model that is not
    in SIZES the cache and the output head are left out."""
    width = BYTES.get(trace.model.dtype, 2)
    size = known_size(trace) or ModelSize(trace.model.id.rsplit("/", 1)[-1][:60], max(trace.model.parameters, 1), 2)
    kv = size.kv_bytes_per_position * width / size.bytes_per_parameter
    return scaled(trace, replace(size, bytes_per_parameter=width, kv_bytes_per_position=kv))


def scaled(trace: Trace, size: ModelSize) -> ModelSize:
    """A target's size, with the trace's drafter grown or shrunk in proportion to the target."""
    drafter = trace.drafter.parameters if trace.drafter is not None else 0
    own = drafter / max(trace.model.parameters, 1) * size.parameters
    return replace(size, drafter_parameters=own, shares_head=bool(drafter) and trace.method in HEAD_SHARERS)


@dataclass(frozen=True)
class Workload:
    """What a trace asked of the hardware, prefill left out: read once, then priced for any hardware and size."""

    rows: NDArray[np.int64]
    """(steps,) Rows of each target pass."""
    cached: NDArray[np.int64]
    """(steps,) Positions in the cache when it began."""
    plain_cached: NDArray[np.int64]
    """(tokens,) The same for plain decoding, which writes the same tokens with one row a pass."""
    draft_passes: int
    draft_rows: float
    """Rows of a draft pass: a trace does not record them, so the drafted nodes are spread evenly over the passes."""


def workload(trace: Trace) -> Workload:
    """Reads the steps of a trace."""
    rows, cached = [pass_rows(step) for step in trace.steps], [cached_before(step) for step in trace.steps]
    tokens = sum(len(step.committed) for step in trace.steps)
    passes = trace.totals.draft_passes
    return Workload(
        rows=np.array(rows, dtype=np.int64),
        cached=np.array(cached, dtype=np.int64),
        plain_cached=(cached[0] if cached else 0) + np.arange(tokens),
        draft_passes=passes,
        draft_rows=max(trace.totals.drafted_nodes / passes, 1.0) if passes else 0.0,
    )


def pass_ms(hardware: Hardware, moved_bytes: Amount, operations: Amount) -> Amount:
    """The longer of the two, and the overhead; of one pass or of an array of passes."""
    moving = moved_bytes / (hardware.bandwidth_gb_s * 1e6)
    computing = operations / (hardware.arithmetic_tflop_s * 1e9)
    return hardware.overhead_ms + np.maximum(moving, computing)


def target_pass(size: ModelSize, rows: Amount, cached: Amount) -> tuple[Amount, Amount]:
    """(bytes, operations) of a pass over `rows` tokens behind `cached` positions."""
    moved = size.parameters * size.bytes_per_parameter + size.kv_bytes_per_position * (cached + rows)
    return moved, rows * (2.0 * size.parameters + 4.0 * size.layers * size.hidden_size * cached)


def draft_pass(size: ModelSize, rows: float) -> tuple[float, float]:
    """(bytes, operations) of one pass of the drafter."""
    read = size.drafter_parameters + (size.head_parameters if size.shares_head else 0.0)
    return read * size.bytes_per_parameter, rows * 2.0 * read


def drafted_ms(work: Workload, hardware: Hardware, size: ModelSize) -> float:
    """Time of the trace's steps there: its target passes, and its draft passes where these read weights."""
    verify = float(np.sum(pass_ms(hardware, *target_pass(size, work.rows, work.cached))))
    if not work.draft_passes or not size.drafter_parameters:
        return verify
    return verify + work.draft_passes * float(pass_ms(hardware, *draft_pass(size, work.draft_rows)))


def plain_ms(work: Workload, hardware: Hardware, size: ModelSize) -> float:
    """Time in which plain decoding there writes the tokens that the trace's steps wrote."""
    return float(np.sum(pass_ms(hardware, *target_pass(size, 1, work.plain_cached))))


def speedup(work: Workload, hardware: Hardware, size: ModelSize) -> float | None:
    """How many times faster than plain decoding the trace would be there, by the model; None without steps."""
    time = drafted_ms(work, hardware, size)
    return plain_ms(work, hardware, size) / time if time > 0 else None


def verify_ms(step: Step) -> float:
    """The measured time of the step's target pass."""
    return sum(span.duration_ms for span in step.spans if span.phase == "verify")


def fitted(traces: Sequence[Trace], name: str = "this machine") -> Hardware | None:
    """The rates that the recording machine reached in target passes; None where the recording cannot tell.

    Bandwidth: bytes of a one-row pass over its median time. Arithmetic: the median, over passes of several rows, of
    operations over time. So both are what was reached, not peaks; draft passes are not fitted. Time that each layer
    costs whatever its size counts as slow memory here, so drafters of one layer are judged too slow.
    """
    bandwidths, rates = [], []
    for trace in traces:
        size = size_of(trace)
        for step in trace.steps:
            rows, time = pass_rows(step), verify_ms(step)
            moved, operations = target_pass(size, rows, cached_before(step))
            if time > 0 and rows == 1:
                bandwidths.append(moved / time / 1e6)
            elif time > 0:
                rates.append(operations / time / 1e9)
    if not bandwidths or not rates:
        return None
    return Hardware(name, median(bandwidths), median(rates), source="fitted to this recording's target passes")
