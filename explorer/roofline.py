"""A cost model, not a measurement: the time that a recorded trace would take on other hardware or a larger target.

The roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): a pass moves its bytes and does its arithmetic, and
each layer costs a fixed overhead besides. Where both run at the same time the longer one counts, else their sum.

The formula is data, `FORMULA`: what is shown, what Python works out here and what the page works out for numbers that
a viewer typed (assets/player/costmodel.js) come from these expressions alone. docs/design/cost-model.md has the why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from explorer.errors import ExplorerError
from explorer.passes import cached_before, pass_rows
from explorer.trace import Trace

Amount = Any
"""A number, or an array of them: one a pass."""
Expression = str | int | tuple[Any, ...]
"""A name, a number, or an operation and its arguments."""

FORMULA: Mapping[str, Expression] = MappingProxyType(
    {
        "row_operations": ("+", ("*", 2, "parameters"), ("*", 4, "layers", "attention", "cached")),
        "target_bytes": ("+", ("*", "parameters", "width"), ("*", "batch", "cache", ("+", "cached", "rows"))),
        "target_operations": ("*", "batch", "rows", "row_operations"),
        "target_ms": (
            "+",
            ("*", "overhead", ("+", "layers", 1)),
            ("join", ("/", "target_bytes", "bandwidth"), ("/", "target_operations", "rate")),
        ),
        "draft_bytes": ("*", "draft_parameters", "width"),
        "draft_operations": ("*", 2, "batch", "draft_rows", "draft_parameters"),
        "draft_ms": (
            "+",
            ("*", "overhead", ("+", "draft_layers", 1)),
            ("join", ("/", "draft_bytes", "bandwidth"), ("/", "draft_operations", "rate")),
        ),
        "time_ms": ("+", ("sum", "target_ms"), ("*", "draft_passes", "draft_ms")),
        "even_rows": ("/", ("*", ("/", "target_bytes", "bandwidth"), "rate"), ("*", "batch", "row_operations")),
    }
)
"""In the order in which they are worked out. `join` is the longer of two, or their sum where nothing overlaps."""

SYMBOLS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "parameters": ("parameters", "of the target that a pass reads"),
        "width": ("weight bytes", "of one parameter"),
        "cache": ("cache bytes", "of one position: keys and values of all layers"),
        "layers": ("layers", "of the target; the output head counts as one more"),
        "attention": ("attention width", "queries of all heads together"),
        "rows": ("rows", "of the pass: root, tree and window, as recorded; 1 in plain decoding"),
        "cached": ("cached", "positions in the cache when the pass began, as recorded"),
        "batch": ("sequences", "that are decoded at once, each with such a tree: a server has many, this page has one"),
        "bandwidth": ("bandwidth", "of the memory"),
        "rate": ("rate", "of the arithmetic; a multiplication and an addition are two operations"),
        "overhead": ("overhead", "of a layer, whatever its size: launching it, waiting for it"),
        "draft_parameters": ("draft parameters", "that one pass of the drafter reads; grown with the target"),
        "draft_layers": ("draft layers", "of the drafter, one after another"),
        "draft_rows": ("draft rows", "drafted nodes over draft passes, as recorded"),
        "draft_passes": ("draft passes", "as recorded; 0 where drafting reads no weights"),
        "row_operations": ("row operations", "of one row of a target pass"),
        "target_bytes": ("target bytes", "that a target pass moves"),
        "target_operations": ("target operations", "of a target pass"),
        "target_ms": ("target pass", "time of a target pass"),
        "draft_bytes": ("draft bytes", "that a draft pass moves"),
        "draft_operations": ("draft operations", "of a draft pass"),
        "draft_ms": ("draft pass", "time of a draft pass"),
        "time_ms": ("time", "of all steps, prefill left out; speed-up = time of plain decoding ÷ time of the lane"),
        "even_rows": ("break-even rows", "rows of a sequence whose arithmetic takes as long as moving the bytes"),
    }
)
"""What a name is called, and what it means."""

UNITS = MappingProxyType({"bandwidth": 1e6, "rate": 1e9, "overhead": 1e-3})
"""What turns GB/s, TFLOP/s and µs into bytes, operations and milliseconds of a millisecond."""


def evaluate(expression: Expression, names: Mapping[str, Amount]) -> Amount:
    """The value of an expression."""
    if isinstance(expression, str):
        return names[expression]
    if not isinstance(expression, tuple):
        return expression
    operation, *arguments = expression
    values = [evaluate(each, names) for each in arguments]
    match operation:
        case "+":
            return reduce(np.add, values)
        case "*":
            return reduce(np.multiply, values)
        case "/":
            return values[0] / values[1]
        case "sum":
            return np.sum(values[0])
        case "join":
            return np.maximum(*values) if names["overlap"] else np.add(*values)
    raise ValueError(f"no such operation: {operation}")


def evaluated(names: Mapping[str, Amount]) -> dict[str, Amount]:
    """The names with all of FORMULA worked out."""
    known = dict(names)
    for name, expression in FORMULA.items():
        known[name] = evaluate(expression, known)
    return known


def written(name: str, overlap: bool) -> str:
    """A line of FORMULA for people."""
    return f"{SYMBOLS[name][0]} = {_written(FORMULA[name], overlap)}"


def _written(expression: Expression, overlap: bool, around: str = "") -> str:
    """`around` is the operation that the text is an argument of, `÷` for its divisor."""
    if not isinstance(expression, tuple):
        return SYMBOLS[expression][0] if isinstance(expression, str) else str(expression)
    operation, *arguments = expression
    if operation == "sum":
        return f"sum of all {_written(arguments[0], overlap)}es"
    if operation == "join" and overlap:
        return f"max({', '.join(_written(each, overlap) for each in arguments)})"
    sign = {"+": " + ", "*": " × ", "/": " ÷ ", "join": " + "}[operation]
    inner = {"*": ("*", "*"), "/": ("*", "÷")}.get(operation, ("", ""))
    text = sign.join(_written(each, overlap, inner[min(place, 1)]) for place, each in enumerate(arguments))
    loose = operation in ("+", "join")
    return f"({text})" if (around and loose) or around == "÷" else text


@dataclass(frozen=True)
class Hardware:
    """Where the passes run. Rates must be positive."""

    name: str
    bandwidth_gb_s: float
    """Memory bandwidth, 10^9 bytes a second."""
    arithmetic_tflop_s: float
    """10^12 operations a second on 16-bit numbers; a multiplication and an addition are two."""
    wide_tflop_s: float | None = None
    """The same on 32-bit numbers; None: no other."""
    overhead_us: float = 0.0
    """Of a layer, of target or drafter, in microseconds."""
    overlap: bool = True
    """Do moving and computing run at the same time?"""
    source: str = ""
    """Who published the figures."""

    def __post_init__(self) -> None:
        wide = self.arithmetic_tflop_s if self.wide_tflop_s is None else self.wide_tflop_s
        if not (self.bandwidth_gb_s > 0 and self.arithmetic_tflop_s > 0 and wide > 0 and self.overhead_us >= 0):
            raise ExplorerError(
                "Bandwidth and arithmetic rate must be more than 0, and the overhead of a layer not negative."
            )

    def rate(self, width: float) -> float:
        """The arithmetic rate for weights of so many bytes."""
        return self.wide_tflop_s if self.wide_tflop_s is not None and width > 2 else self.arithmetic_tflop_s

    def names(self, width: float) -> dict[str, Amount]:
        """As the formula calls them."""
        rates = {"bandwidth": self.bandwidth_gb_s, "rate": self.rate(width), "overhead": self.overhead_us}
        return {name: value * UNITS[name] for name, value in rates.items()} | {"overlap": self.overlap}


@dataclass(frozen=True)
class ModelSize:
    """The target that the trace is imagined on."""

    name: str
    parameters: float
    """That a pass reads."""
    width: float
    """Bytes of a parameter."""
    layers: int = 0
    attention: int = 0
    """Queries of all heads together."""
    cache: float = 0.0
    """Bytes of a position, keys and values of all layers; 0 leaves the cache out."""

    def __post_init__(self) -> None:
        if not (self.parameters > 0 and self.width > 0 and min(self.layers, self.attention, self.cache) >= 0):
            raise ExplorerError("A model needs more than 0 parameters and bytes, and no size may be negative.")


PRESETS: tuple[Hardware, ...] = (
    Hardware(
        "4-core laptop CPU", 51.2, 0.358, overlap=False, source="Intel ARK, Core i7-1165G7: DDR4-3200 × 2; 4 × 2.8 GHz"
    ),
    Hardware("Apple M2", 100.0, 3.6, source="Apple newsroom, 6 June 2022"),
    Hardware("NVIDIA L4", 300.0, 121.0, 60.0, source="NVIDIA L4 data sheet, dense"),
    Hardware("GeForce RTX 3090", 936.0, 71.0, 35.6, source="NVIDIA GA102 white paper, 32-bit sums, dense"),
    Hardware("NVIDIA A100 80 GB", 2039.0, 312.0, 156.0, source="NVIDIA A100 data sheet, SXM, dense"),
    Hardware("NVIDIA H100", 3350.0, 989.4, 494.7, source="NVIDIA H100 data sheet, SXM, dense"),
    Hardware("NVIDIA H200", 4800.0, 989.4, 494.7, source="NVIDIA H200 data sheet, SXM, dense"),
)
"""Published peaks without sparsity; 32-bit weights are multiplied in TF32 where there are matrix units."""

SMALL = ModelSize("SmolLM2-135M", 134_515_008, 2, 30, 576, 30 * 2 * 3 * 64 * 2)
LARGE = ModelSize("Llama-3.1-8B, 16-bit", 7_504_924_672, 2, 32, 4096, 32 * 2 * 8 * 128 * 2)
SIZES: tuple[ModelSize, ...] = (
    LARGE,
    replace(LARGE, name="Llama-3.1-8B, 4-bit", width=0.5625),
    ModelSize("Llama-3.1-70B, 16-bit", 69_503_033_344, 2, 80, 8192, 80 * 2 * 8 * 128 * 2),
)
"""From the models' own configurations; 4-bit weights come with a scale for every 32. Their input embedding is apart
from the output head, so a pass does not read it."""

BYTES = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2})


def size_of(trace: Trace) -> ModelSize:
    """The size that the trace itself ran at. Where a trace tells no more than its parameters, and they are not those
    of the default model, cache and attention are left out."""
    width, model = BYTES.get(trace.model.dtype, 2), trace.model
    name = f"{str(getattr(model, 'label', None) or model.id.rsplit('/', 1)[-1])[:48].split(',')[0]}, as it ran"
    if model.shape is not None:
        shape = model.shape
        cache = shape.cache_values * width
        return ModelSize(name, shape.pass_parameters, width, shape.layers, shape.attention_size, cache)
    if model.parameters == SMALL.parameters:
        return replace(SMALL, name=name, width=width, cache=SMALL.cache * width / SMALL.width)
    return ModelSize(name, max(model.parameters, 1), width)


def is_whole(trace: Trace) -> bool:
    """Does the trace tell all that the model needs of the target?"""
    return trace.model.shape is not None or trace.model.parameters == SMALL.parameters


@dataclass(frozen=True)
class Workload:
    """What a trace asked of the hardware, prefill left out: read once, then priced for any hardware and size."""

    rows: tuple[int, ...]
    """Of each target pass."""
    cached: tuple[int, ...]
    """Positions in the cache when it began."""
    tokens: int
    """That the steps wrote: as many passes of one row take plain decoding there, from the same position on."""
    draft_passes: int = 0
    draft_rows: float = 0.0
    """Rows of a draft pass: a trace does not record them, so the drafted nodes are spread evenly over the passes."""
    draft_share: float = 0.0
    """Parameters that a draft pass reads over those that a target pass reads."""
    draft_layers: int = 1

    def names(self, size: ModelSize) -> dict[str, Amount]:
        """As the formula calls them, with the size's."""
        return {
            "batch": 1,
            "rows": np.array(self.rows, dtype=float),
            "cached": np.array(self.cached, dtype=float),
            "draft_passes": self.draft_passes,
            "draft_rows": self.draft_rows,
            "draft_layers": self.draft_layers,
            "draft_parameters": self.draft_share * size.parameters,
        } | {name: getattr(size, name) for name in ("parameters", "width", "layers", "attention", "cache")}

    def plain(self) -> Workload:
        """Plain decoding of the same tokens."""
        start = self.cached[0] if self.cached else 0
        return Workload((1,) * self.tokens, tuple(range(start, start + self.tokens)), self.tokens)


def workload(trace: Trace) -> Workload:
    """Reads the steps of a trace. A drafter that tells no more is taken to read its own parameters."""
    drafter, passes = trace.drafter, trace.totals.draft_passes
    read = 0 if drafter is None else drafter.pass_parameters or drafter.parameters
    drafting = passes if read else 0
    return Workload(
        rows=tuple(pass_rows(step) for step in trace.steps),
        cached=tuple(cached_before(step) for step in trace.steps),
        tokens=sum(len(step.committed) for step in trace.steps),
        draft_passes=drafting,
        draft_rows=max(trace.totals.drafted_nodes / passes, 1.0) if drafting else 0.0,
        draft_share=read / size_of(trace).parameters,
        draft_layers=1 if drafter is None or drafter.layers is None else drafter.layers,
    )


def priced(work: Workload, hardware: Hardware, size: ModelSize) -> dict[str, Amount]:
    """All of the formula for a workload: times, bytes, operations."""
    return evaluated(hardware.names(size.width) | work.names(size))


def speedup(work: Workload, hardware: Hardware, size: ModelSize) -> float | None:
    """How many times faster than plain decoding the trace would be there, by the model; None without steps."""
    if not work.rows:
        return None
    plain = priced(work.plain(), hardware, size)["time_ms"]
    return float(plain / priced(work, hardware, size)["time_ms"])
