"""Where the time goes: every span of every lane on one axis, each on its lane's own clock."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.figures.base import Json, Overview
from explorer.figures.labels import drawn_token, plural
from explorer.figures.theme import SANS, Theme, axis, base_layout, legend_above
from explorer.runs import LaneRecord, Run
from explorer.trace import Span, Step

PHASES = ("prefill", "drafter-prefill", "draft", "verify", "accept", "commit")
THICK, THIN = (-0.33, 0.66), (0.11, 0.22)
"""Offset and height of a bar, in lanes: bookkeeping is drawn as short ticks at the foot of the others."""
LANE = 34
"""Pixels per lane."""
STEP = 5
"""Least pixels per step, within the bounds below; the legend needs the lower one not to cover the bars."""
NARROWEST, WIDEST = 600, 900


def lane_end(record: LaneRecord) -> float:
    """The lane's clock after what was recorded so far, in ms."""
    spans = record.steps[-1].spans if record.steps else ()
    return max((span.start_ms + span.duration_ms for span in spans or record.prefill), default=0.0)


def step_range(step: Step, before: float) -> list[float]:
    """When the step ran, in ms; a step without spans takes no time."""
    if not step.spans:
        return [before, before]
    start = min(span.start_ms for span in step.spans)
    return [round(start, 3), round(max(span.start_ms + span.duration_ms for span in step.spans), 3)]


def cursor_of(record: LaneRecord) -> list[list[float]]:
    """Per step its range on the time axis."""
    ranges: list[list[float]] = []
    before = max((span.start_ms + span.duration_ms for span in record.prefill), default=0.0)
    for step in list(record.steps):
        ranges.append(step_range(step, before))
        before = ranges[-1][1]
    return ranges


def build(run: Run, theme: Theme, horizontal: str) -> Json:
    """One bar trace a phase, so that a phase has one colour, one pattern and one legend entry."""
    records = list(run.lanes.values())
    bars: dict[str, list[tuple[int, int | None, Span]]] = {phase: [] for phase in PHASES}
    for row, record in enumerate(records):
        for index, span in _spans(record):
            bars.setdefault(span.phase, []).append((row, index, span))
    data = [_trace(phase, bars[phase], records, theme) for phase in bars if bars[phase]]
    end = max((lane_end(record) for record in records), default=0.0)
    names = [drawn_token(record.header.title, 22).replace("␣", " ") for record in records]
    layout = base_layout(theme) | {
        "height": 86 + LANE * max(len(records), 1),
        "barmode": "overlay",
        "bargap": 0.34,
        "showlegend": True,
        "legend": legend_above(theme.soft) | {"traceorder": "normal"},
        "margin": {"l": 8, "r": 12, "t": 30, "b": 40},
        "xaxis": axis(theme, "lane clock, ms", tickformat=",d", range=[0, end * 1.01 or 1]),
        "yaxis": axis(
            theme,
            range=[len(records) - 0.5, -0.5],
            tickvals=list(range(len(records))),
            ticktext=names,
            automargin=True,
            showgrid=False,
            tickfont={"size": 12.5, "color": theme.ink, "family": SANS},
        ),
    }
    return {
        "data": data,
        "layout": layout,
        "cursor": {record.header.lane: cursor_of(record) for record in records},
        "alt": describe(records),
        "min_width": max(
            NARROWEST, min(WIDEST, 120 + STEP * max((len(record.steps) for record in records), default=0))
        ),
    }


def _spans(record: LaneRecord) -> Iterator[tuple[int | None, Span]]:
    """All spans with their step's index; none for the prefill's."""
    yield from ((None, span) for span in record.prefill)
    for step in list(record.steps):
        yield from ((step.index, span) for span in step.spans)


def _trace(phase: str, bars: list[tuple[int, int | None, Span]], records: list[LaneRecord], theme: Theme) -> Json:
    colour, pattern = theme.phases.get(phase, (theme.soft, "+"))
    name = drawn_token(phase, 24)
    marker: Json = {"color": colour, "line": {"width": 0}}
    if pattern:
        marker["pattern"] = {
            "shape": pattern,
            "fillmode": "overlay",
            "fgcolor": theme.card,
            "size": 5,
            "solidity": 0.25,
        }
    offset, height = THIN if phase in ("accept", "commit") else THICK
    where = "before the first step" if "prefill" in phase else "step %{customdata[3]}"
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [row for row, _, _ in bars],
        "base": [round(span.start_ms, 2) for _, _, span in bars],
        "x": [round(span.duration_ms, 3) for _, _, span in bars],
        "customdata": [
            [index, records[row].header.lane, round(span.duration_ms, 3), 0 if index is None else index + 1]
            for row, index, span in bars
        ],
        "offset": offset,
        "width": height,
        "marker": marker,
        "hovertemplate": f"<b>{name}</b> · %{{customdata[2]}} ms<br>{where}<extra></extra>",
    }


def describe(records: list[LaneRecord]) -> str:
    """The picture in words."""
    parts = [
        f"{record.header.title} {lane_end(record):,.0f} ms in {plural(len(record.steps), 'step')}" for record in records
    ]
    return f"Where the time goes, each lane on its own clock: {'; '.join(parts)}." if parts else "No lane has run yet."


TIMELINE = Overview(
    name="timeline",
    title="Where the time goes",
    label="Prefill, draft, verify, accept and commit of every lane, measured on this machine.",
    axes=("ms",),
    build=build,
)
