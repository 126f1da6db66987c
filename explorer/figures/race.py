"""The race: tokens of every lane over target passes (the machine does not matter) or over milliseconds."""

from __future__ import annotations

from explorer.figures.base import Json, Overview
from explorer.figures.labels import drawn_token, plural
from explorer.figures.theme import Theme, axis, base_layout, legend_above
from explorer.figures.timeline import cursor_of
from explorer.runs import LaneRecord, Run
from explorer.trace import GIVEN

TITLES = {"passes": "target passes after the prefill", "ms": "lane clock, ms"}
MARKS = 5
"""Marks along a line at most: with eight lanes colour and dash alone are hard to tell apart."""


def points_of(record: LaneRecord, horizontal: str) -> tuple[list[float], list[int]]:
    """Where and how many: the prefill's token first, then after each step."""
    if not record.tokens:
        return [], []
    start = max((span.start_ms + span.duration_ms for span in record.prefill), default=0.0)
    xs = [0.0 if horizontal == "passes" else round(start, 3)]
    ys = [1 + sum(token.source in GIVEN for token in record.tokens)]
    steps = list(record.steps)
    for place, (step, (_, end)) in enumerate(zip(steps, cursor_of(record), strict=False), start=1):
        xs.append(place if horizontal == "passes" else end)
        ys.append(ys[-1] + len(step.committed))
    return xs, ys


def build(run: Run, theme: Theme, horizontal: str) -> Json:
    """One step line a lane."""
    records = list(run.lanes.values())
    data = [_trace(record, place, horizontal, theme) for place, record in enumerate(records)]
    data.append(_ends(records, horizontal, theme))
    layout = base_layout(theme) | {
        "height": 330,
        "showlegend": True,
        "legend": legend_above(theme.ink),
        "margin": {"l": 48, "r": 12, "t": 30, "b": 44},
        "xaxis": axis(theme, TITLES[horizontal], rangemode="tozero", tickformat=",d"),
        "yaxis": axis(theme, "output tokens", rangemode="tozero"),
    }
    if horizontal == "passes":
        cursor = {r.header.lane: [[float(i), float(i + 1)] for i in range(len(r.steps))] for r in records}
    else:
        cursor = {r.header.lane: cursor_of(r) for r in records}
    return {
        "data": data,
        "layout": layout,
        "cursor": cursor,
        "alt": describe(records, horizontal),
        "min_width": 320,
    } | _terms(horizontal)


def _terms(horizontal: str) -> Json:
    """What the axes mean, and which of them the machine decides."""
    across = {
        "passes": (
            "target passes",
            "count: forward passes of the target after the prefill, one a step, on any machine.",
        ),
        "ms": (
            "lane clock",
            "measured: milliseconds of this lane's own work where it ran, prefill included.",
        ),
    }[horizontal]
    tokens = ("output tokens", "count: the prefill's first token and what the steps added, end token included.")
    return {"definitions": [list(across), list(tokens)]}


def _trace(record: LaneRecord, place: int, horizontal: str, theme: Theme) -> Json:
    style = theme.lanes[place % len(theme.lanes)]
    xs, ys = points_of(record, horizontal)
    lane = record.header.lane
    name = drawn_token(record.header.title, 22).replace("␣", " ")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": xs,
        "y": ys,
        "line": {"shape": "hv", "color": style.colour, "dash": style.dash, "width": 2.2},
        "marker": {"symbol": style.symbol, "size": 7, "color": style.colour, "maxdisplayed": MARKS},
        "customdata": [
            [at - 1 if at else None, lane, f"{plural(y, 'token')} after {_reached(x, horizontal)}"]
            for at, (x, y) in enumerate(zip(xs, ys, strict=True))
        ],
        "hovertemplate": f"<b>{name}</b><br>%{{customdata[2]}}<extra></extra>",
    }


def _reached(x: float, horizontal: str) -> str:
    """A place on the axis in words."""
    return plural(round(x), "pass", "passes") if horizontal == "passes" else f"{x:,.0f} ms"


def _ends(records: list[LaneRecord], horizontal: str, theme: Theme) -> Json:
    """A mark where each lane stands now, or stopped."""
    ends = [(place, *points_of(record, horizontal)) for place, record in enumerate(records)]
    ends = [(place, xs, ys) for place, xs, ys in ends if xs]
    styles = [theme.lanes[place % len(theme.lanes)] for place, _, _ in ends]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [xs[-1] for _, xs, _ in ends],
        "y": [ys[-1] for _, _, ys in ends],
        "marker": {
            "size": 10,
            "symbol": [style.symbol for style in styles],
            "color": [style.colour for style in styles],
            "line": {"width": 1.5, "color": theme.card},
        },
        "cliponaxis": False,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def describe(records: list[LaneRecord], horizontal: str) -> str:
    """The picture in words."""
    parts = []
    for record in records:
        xs, ys = points_of(record, horizontal)
        if xs:
            parts.append(f"{record.header.title} {plural(ys[-1], 'token')} after {_reached(xs[-1], horizontal)}")
    return f"Race: {'; '.join(parts)}." if parts else "No lane has run yet."


RACE = Overview(
    name="race",
    title="The race",
    label="Output tokens of every lane over target passes or over its own clock.",
    axes=("passes", "ms"),
    build=build,
)
