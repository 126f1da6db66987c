"""The cost model's picture: what speed-up the recorded trees and acceptances would give on other hardware.

A model and not a measurement, and drawn so: open marks are predictions, filled ones were measured. The page works out
the same for hardware and sizes that a viewer types; what it needs for that is in `cost`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from explorer.figures.base import Json, Overview
from explorer.figures.cost_tables import check_of, formula_of
from explorer.figures.labels import drawn_token, plotly_text
from explorer.figures.theme import LaneStyle, Theme, axis, base_layout, legend_above
from explorer.fitting import fitted, together
from explorer.metrics import BASELINE
from explorer.metrics import speedup as measured_speedup
from explorer.roofline import PRESETS, SIZES, Hardware, ModelSize, Workload, priced, size_of, speedup, workload
from explorer.runs import LaneRecord, Run
from explorer.trace import Trace

YOURS = "your numbers"
NOTHING = "Cost model: no lane has ended yet."


@dataclass(frozen=True)
class Curve:
    """A lane that has ended, and how it is drawn."""

    record: LaneRecord
    trace: Trace
    style: LaneStyle
    work: Workload
    measured: float | None

    @property
    def name(self) -> str:
        """The lane's title, safe for a picture."""
        return drawn_token(self.record.header.title, 22).replace("␣", " ")

    @property
    def drafts(self) -> bool:
        """Plain decoding is what the others are compared with."""
        return self.trace.method != BASELINE


def curves_of(run: Run, theme: Theme) -> list[Curve]:
    """All lanes that have ended with a step."""
    ended = [(place, r, r.trace) for place, r in enumerate(run.lanes.values()) if r.trace is not None and r.trace.steps]
    plain = next((trace for _, _, trace in ended if trace.method == BASELINE), None)
    styles = theme.lanes
    return [
        Curve(
            record,
            trace,
            styles[place % len(styles)],
            workload(trace),
            measured_speedup(plain, trace) if plain else None,
        )
        for place, record, trace in ended
    ]


def places_of(curves: list[Curve]) -> list[Hardware]:
    """The recording machine, where its passes tell, then the presets by balance: operations a byte."""
    machine = fitted(together([curve.trace for curve in curves]))
    presets = sorted(PRESETS, key=lambda each: each.arithmetic_tflop_s / each.bandwidth_gb_s)
    return [*([machine] if machine else []), *presets]


def build(run: Run, theme: Theme, horizontal: str) -> Json:
    """A line a lane over the hardware, for the model as it ran; all that the page needs to work out others."""
    curves = curves_of(run, theme)
    places = places_of(curves)
    own = size_of(curves[0].trace) if curves else SIZES[0]
    drawn = [curve for curve in curves if curve.drafts]
    here = len(places) > len(PRESETS)
    data = [_line(curve, places, own) for curve in drawn]
    data += [_mark(curve, places[0], theme) for curve in drawn if here and curve.measured]
    layout = base_layout(theme) | {
        "height": 360,
        "showlegend": True,
        "legend": legend_above(theme.ink),
        "margin": {"l": 52, "r": 16, "t": 30, "b": 52},
        "xaxis": axis(theme, type="category", tickangle=0, range=[-0.5, len(places) - 0.5])
        | {"tickvals": [each.name for each in places], "ticktext": [folded(each.name) for each in places]},
        "yaxis": axis(theme, "speed-up over plain decoding", rangemode="tozero"),
        "shapes": [_even(theme)],
    }
    return {
        "data": data,
        "layout": layout,
        "cursor": {},
        "alt": describe(drawn, places, own, here) if curves else NOTHING,
        "min_width": 720,
        "cost": _cost(curves, places, own, here) if curves else None,
    }


def _line(curve: Curve, places: list[Hardware], own: ModelSize) -> Json:
    values = [speedup(curve.work, each, own) or 0.0 for each in places]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": curve.name,
        "meta": "said",
        "x": [plotly_text(each.name) for each in places],
        "y": [round(value, 4) for value in values],
        "customdata": [[None, curve.record.header.lane] for _ in places],
        "line": {"color": curve.style.colour, "dash": curve.style.dash, "width": 2},
        "marker": {
            "symbol": f"{curve.style.symbol}-open",
            "size": 9,
            "color": curve.style.colour,
            "line": {"width": 2},
        },
        "hovertext": [
            f"<b>{curve.name}</b> on {plotly_text(each.name)}: {value:.2f}× by the model<br>"
            f"break-even {rows_in_words(even_rows(curve.work, each, own))}"
            for each, value in zip(places, values, strict=True)
        ],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _mark(curve: Curve, machine: Hardware, theme: Theme) -> Json:
    """What was measured, where it was measured."""
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "name": curve.name,
        "meta": "measured",
        "x": [plotly_text(machine.name)],
        "y": [round(curve.measured or 0.0, 4)],
        "customdata": [[None, curve.record.header.lane]],
        "marker": {
            "symbol": curve.style.symbol,
            "size": 12,
            "color": curve.style.colour,
            "line": {"width": 1.5, "color": theme.card},
        },
        "hovertext": [f"<b>{curve.name}</b>, the machine of this recording: {curve.measured or 0.0:.2f}× measured"],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _even(theme: Theme) -> Json:
    """Where drafting neither helps nor hurts."""
    line = {"color": theme.soft, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}


def _cost(curves: list[Curve], places: list[Hardware], own: ModelSize, here: bool) -> Json:
    """What the page needs to evaluate the formula for numbers that a viewer types."""
    return {
        **formula_of(),
        "hardware": [asdict(each) | {"folded": folded(each.name)} for each in places],
        "sizes": [asdict(each) for each in _sizes(own)],
        "here": here,
        "yours": {"name": YOURS, "folded": folded(YOURS)},
        "lanes": [
            {"lane": curve.record.header.lane, "title": curve.record.header.title, "drafts": curve.drafts}
            | {"measured": curve.measured and round(curve.measured, 4)}
            | {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(curve.work).items()}
            for curve in curves
        ],
        "check": check_of(together([curve.trace for curve in curves]), BASELINE, places[0]) if here else None,
    }


def folded(name: str) -> str:
    """A name on two lines, as even as its words allow."""
    words = name.split()
    cuts = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words))]
    return (
        plotly_text(name) if not cuts else "<br>".join(map(plotly_text, min(cuts, key=lambda cut: max(map(len, cut)))))
    )


def _sizes(own: ModelSize) -> list[ModelSize]:
    """The recorded model as it ran and with 16-bit weights, then others."""
    half = ModelSize(
        own.name.replace("as it ran", "16-bit"), own.parameters, 2, own.layers, own.attention, own.cache * 2 / own.width
    )
    return [own, *([half] if own.width > 2 else []), *SIZES]


def describe(drawn: list[Curve], places: list[Hardware], own: ModelSize, here: bool) -> str:
    """The picture in words."""
    parts = []
    for curve in drawn:
        at = [f"{speedup(curve.work, each, own) or 0.0:.2f} on {each.name}" for each in places]
        seen = f" ({curve.measured:.2f} measured)" if here and curve.measured else ""
        parts.append(f"{curve.record.header.title} {at[0]}{seen}, {', '.join(at[1:])}")
    if not parts:
        return "Cost model: no lane that drafts has ended yet."
    even = [f"{rows_in_words(even_rows(drawn[0].work, each, own))} on {each.name}" for each in places]
    return (
        f"A model, not a measurement, of {own.name}. Speed-up by the model: {'; '.join(parts)}. "
        f"Break-even, where arithmetic takes as long as moving the bytes: {', '.join(even)}."
    )


def even_rows(work: Workload, hardware: Hardware, size: ModelSize) -> float:
    """The break-even in the middle of the lane."""
    middle = Workload((1,), (work.cached[len(work.cached) // 2],), 1)
    return float(priced(middle, hardware, size)["even_rows"][0])


def rows_in_words(rows: float) -> str:
    """A break-even: with a decimal where it is small."""
    return f"{rows:.1f} rows" if rows < 9.95 else f"{rows:,.0f} rows"


ROOFLINE = Overview(
    name="roofline",
    title="Cost model: other hardware",
    label="A model, not a measurement: the speed-up that the same trees and acceptances would give on other hardware.",
    axes=("all",),
    build=build,
)
