"""The cost model's picture: what speed-up the recorded trees and acceptances would give on other hardware.

A model and not a measurement, and drawn so: lines are predictions, and the measured speed-up of the machine that made
the recording stands beside what the model says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log10

from explorer.figures.base import Json, Overview
from explorer.figures.labels import drawn_token, plotly_text
from explorer.figures.theme import LaneStyle, Theme, axis, base_layout, legend_above
from explorer.metrics import speedup as measured_speedup
from explorer.roofline import (
    LARGE,
    PRESETS,
    Hardware,
    ModelSize,
    fitted,
    known_size,
    scaled,
    size_of,
    speedup,
    workload,
)
from explorer.runs import LaneRecord, Run
from explorer.trace import Trace

BASELINE = "autoregressive"
FORMULA = (
    "A model, not a measurement. Time of a pass = max(bytes ÷ bandwidth, operations ÷ arithmetic rate).",
    "Bytes = weights + cache; operations = rows × (2 × parameters + 4 × layers × width × cached positions).",
    "A step = its target pass + its draft passes; trees and acceptances are the recording's.",
)
PEAKS = "Published peaks, 16-bit weights"
GRID = tuple(round(1.5 * 1.14**place, 3) for place in range(46))
"""Balances at which a curve is drawn: without overhead only the balance matters for a speed-up."""


@dataclass(frozen=True)
class Curve:
    """A lane's predictions, one a preset in order of balance, and what was measured here."""

    record: LaneRecord
    style: LaneStyle
    predicted: list[float]
    """On the presets, in order of balance."""
    along: list[float]
    """At the balances of GRID."""
    here: float | None = None
    """What the model says of the recording machine."""
    measured: float | None = None


def presets() -> list[Hardware]:
    """By balance: operations a byte."""
    return sorted(PRESETS, key=lambda each: each.balance)


def curves_of(run: Run, theme: Theme, own: bool) -> tuple[list[Curve], Hardware | None]:
    """Lanes that have ended and draft, and the rates fitted to the recording (for its own model only)."""
    ended = [(place, r, r.trace) for place, r in enumerate(run.lanes.values()) if r.trace is not None and r.trace.steps]
    machine = fitted([trace for _, _, trace in ended]) if own else None
    plain = next((trace for _, _, trace in ended if trace.method == BASELINE), None)
    curves = []
    for place, record, trace in ended:
        if trace.method == BASELINE:
            continue
        work, size = workload(trace), _size(trace, own)
        predicted = [speedup(work, each, size) or 0.0 for each in presets()]
        along = [speedup(work, Hardware("", 1e3, balance), size) or 0.0 for balance in GRID]
        measured = measured_speedup(plain, trace) if plain is not None and machine is not None else None
        here = speedup(work, machine, size_of(trace)) if machine is not None else None
        style = theme.lanes[place % len(theme.lanes)]
        curves.append(Curve(record, style, predicted, along, here, measured))
    return curves, machine


def _size(trace: Trace, own: bool) -> ModelSize:
    """16-bit weights everywhere: the presets' rates are for these."""
    if not own:
        return scaled(trace, LARGE)
    size = size_of(trace)
    half = 2 / size.bytes_per_parameter
    return replace(size, bytes_per_parameter=2, kv_bytes_per_position=size.kv_bytes_per_position * half)


def captions(run: Run, own: bool) -> tuple[str, ...]:
    """The formula, and what the model leaves out of this recording."""
    ended = [record.trace for record in run.lanes.values() if record.trace is not None]
    if not own:
        return *FORMULA, f"{PEAKS}; sizes of {LARGE.name}, the drafter grown in proportion."
    left_out = any(known_size(trace) is None for trace in ended)
    wide = any(size_of(trace).bytes_per_parameter > 2 for trace in ended)
    moved = "; the recording's machine had 32-bit ones and stands twice as far right" if wide else ""
    missing = ("Cache and output head of this model are not recorded and left out.",) if left_out else ()
    return *FORMULA, f"{PEAKS}{moved}.", *missing


def build(run: Run, theme: Theme, horizontal: str) -> Json:
    """Lines over balance; two marks a lane for the recording machine: predicted (open) and measured (filled)."""
    own = horizontal == "recorded model"
    curves, machine = curves_of(run, theme, own)
    data = [trace for curve in curves for trace in _lines(curve)]
    data += [trace for curve in curves for trace in _here(curve, machine, theme)]
    places = presets()
    layout = base_layout(theme) | {
        "height": 490,
        "showlegend": True,
        "legend": legend_above(theme.ink),
        "margin": {"l": 52, "r": 16, "t": 30, "b": 224},
        "xaxis": axis(
            theme,
            "operations the hardware does per byte it moves",
            type="log",
            range=[log10(GRID[0]), log10(GRID[-1])],
            tickvals=[round(each.balance, 2) for each in places],
            ticktext=[f"{each.balance:.0f} · {plotly_text(each.name)}" for each in places],
            tickangle=-35,
        ),
        "yaxis": axis(theme, "speed-up over plain decoding", rangemode="tozero"),
        "annotations": [_caption(text, -132 - 18 * line, theme) for line, text in enumerate(captions(run, own))],
        "shapes": [_even(theme)],
    }
    return {
        "data": data,
        "layout": layout,
        "cursor": {},
        "alt": describe(curves, machine, captions(run, own)),
        "min_width": 640,
    }


def _caption(text: str, shift: int, theme: Theme) -> Json:
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 0, "yref": "paper", "yanchor": "top", "yshift": shift}
    return place | {"text": text, "showarrow": False, "align": "left", "font": {"size": 11, "color": theme.soft}}


def _even(theme: Theme) -> Json:
    """Where drafting neither helps nor hurts."""
    line = {"color": theme.soft, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}


def _name(curve: Curve) -> str:
    return drawn_token(curve.record.header.title, 22).replace("␣", " ")


def _lines(curve: Curve) -> list[Json]:
    """The curve, marks on the presets, and an entry for the legend that shows both dash and mark."""
    name, lane = _name(curve), curve.record.header.lane
    line = {"color": curve.style.colour, "dash": curve.style.dash, "width": 2.2}
    marker = {"symbol": curve.style.symbol, "size": 8, "color": curve.style.colour}
    common = {"type": "scatter", "name": name, "line": line, "marker": marker}
    about = [
        f"<b>{name}</b> on {plotly_text(each.name)}: {value:.2f}× by the model<br>"
        f"{each.bandwidth_gb_s:,.0f} GB/s, {each.arithmetic_tflop_s:g} TFLOP/s<br>{plotly_text(each.source)}"
        for each, value in zip(presets(), curve.predicted, strict=True)
    ]
    marks = {
        "mode": "markers",
        "showlegend": False,
        "x": [round(each.balance, 2) for each in presets()],
        "y": [round(value, 3) for value in curve.predicted],
        "customdata": [[None, lane] for _ in curve.predicted],
        "hovertext": about,
        "hoverinfo": "text",
    }
    drawn = {"mode": "lines", "showlegend": False, "hoverinfo": "skip"}
    return [
        common | drawn | {"x": list(GRID), "y": [round(value, 3) for value in curve.along]},
        common | marks,
        common | {"mode": "lines+markers", "x": [None], "y": [None], "hoverinfo": "skip"},
    ]


def place_of(curve: Curve, machine: Hardware) -> float:
    """Where the recording machine stands among 16-bit weights: wider weights move it right, as they do its ridge."""
    trace = curve.record.trace
    return machine.balance * (size_of(trace).bytes_per_parameter / 2 if trace is not None else 1.0)


def _here(curve: Curve, machine: Hardware | None, theme: Theme) -> list[Json]:
    """The recording machine: an open mark for the model's word, a filled one for what was measured."""
    if machine is None or curve.here is None or curve.measured is None:
        return []
    name, symbol = _name(curve), curve.style.symbol
    common = {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": [round(place_of(curve, machine), 2)],
        "customdata": [[None, curve.record.header.lane]],
        "hoverinfo": "text",
        "cliponaxis": False,
    }
    rates = f"{machine.bandwidth_gb_s:.1f} GB/s and {machine.arithmetic_tflop_s:.3g} TFLOP/s reached in target passes"
    said = f"<b>{name}</b>, the machine of this recording: {curve.here:.2f}× by the model<br>{rates}"
    seen = f"<b>{name}</b>, the machine of this recording: {curve.measured:.2f}× measured"
    open_mark = {"symbol": f"{symbol}-open", "size": 13, "color": curve.style.colour, "line": {"width": 2}}
    full_mark = {"symbol": symbol, "size": 12, "color": curve.style.colour, "line": {"width": 1.5, "color": theme.card}}
    return [
        common | {"y": [round(curve.here, 3)], "marker": open_mark, "hovertext": [said]},
        common | {"y": [round(curve.measured, 3)], "marker": full_mark, "hovertext": [seen]},
    ]


def describe(curves: list[Curve], machine: Hardware | None, said: tuple[str, ...]) -> str:
    """The picture in words."""
    if not curves:
        return "Cost model: no lane that drafts has ended yet."
    parts = []
    for curve in curves:
        at = [f"{value:.2f} on {each.name}" for each, value in zip(presets(), curve.predicted, strict=True)]
        words = f"{curve.record.header.title} {', '.join(at)}"
        if machine is not None and curve.here is not None and curve.measured is not None:
            words += f", on the machine of this recording {curve.here:.2f} by the model, {curve.measured:.2f} measured"
        parts.append(words)
    return f"{' '.join(said)} Speed-up by the model: {'; '.join(parts)}."


ROOFLINE = Overview(
    name="roofline",
    title="Cost model: other hardware",
    label="A model, not a measurement: the speed-up that the same trees and acceptances would give on other hardware.",
    axes=("recorded model", "8B model"),
    build=build,
)
