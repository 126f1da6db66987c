"""Where the time goes: every span of every lane on one axis, each on its lane's own clock, or summed by phase."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.figures.base import Json, Overview
from explorer.figures.labels import drawn_token, plural
from explorer.figures.theme import SANS, Theme, axis, base_layout, legend_above
from explorer.figures.verdicts import verdicts
from explorer.metrics import phase_ms
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
STACKED = ("draft", "verify", "accept", "commit")
"""Phases of a step, in their order."""
DEFINITIONS = (
    ("lane clock", "measured: only this lane's own work counts, although lanes take turns on the machine."),
    ("prefill", "measured: the pass over the prompt, shared by all lanes; drafter-prefill is the drafter's own."),
    ("draft", "measured: making the candidate tree: passes of a drafter, look-ups, bookkeeping of the method."),
    ("verify", "measured: the target pass over the root, the tree and riding rows such as Lookahead's window."),
    ("accept", "measured: finding the accepted path, and the target's own token."),
    ("commit", "measured: keeping the accepted rows in the cache, and what the method learns from the step."),
    ("ms a token", "measured: time of the steps over the tokens that they gave; the prefill is left out."),
)


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
    """The spans, or their sums; beside them why each lane is as fast as it is."""
    built = _stacks(run, theme) if horizontal == "phases" else _clocks(run, theme)
    return built | {"definitions": [list(pair) for pair in DEFINITIONS], "words": verdicts(run)}


def _clocks(run: Run, theme: Theme) -> Json:
    """One bar trace a phase, so that a phase has one colour, one pattern and one legend entry."""
    records = list(run.lanes.values())
    bars: dict[str, list[tuple[int, int | None, Span]]] = {phase: [] for phase in PHASES}
    for row, record in enumerate(records):
        for index, span in _spans(record):
            bars.setdefault(span.phase, []).append((row, index, span))
    data = [_trace(phase, bars[phase], records, theme) for phase in bars if bars[phase]]
    end = max((lane_end(record) for record in records), default=0.0)
    layout = _layout(
        records, theme, "overlay", axis(theme, "lane clock, ms", tickformat=",d", range=[0, end * 1.01 or 1])
    )
    return {
        "data": data,
        "layout": layout,
        "cursor": {record.header.lane: cursor_of(record) for record in records},
        "alt": describe(records),
        "min_width": max(
            NARROWEST, min(WIDEST, 120 + STEP * max((len(record.steps) for record in records), default=0))
        ),
    }


def _layout(records: list[LaneRecord], theme: Theme, mode: str, horizontal: Json) -> Json:
    """A row a lane, its name at the left."""
    return base_layout(theme) | {
        "height": 86 + LANE * max(len(records), 1),
        "barmode": mode,
        "bargap": 0.34,
        "showlegend": True,
        "legend": legend_above(theme.soft) | {"traceorder": "normal"},
        "margin": {"l": 8, "r": 12, "t": 30, "b": 40},
        "xaxis": horizontal,
        "yaxis": axis(
            theme,
            range=[len(records) - 0.5, -0.5],
            tickvals=list(range(len(records))),
            ticktext=[drawn_token(record.header.title, 22).replace("␣", " ") for record in records],
            automargin=True,
            showgrid=False,
            tickfont={"size": 12.5, "color": theme.ink, "family": SANS},
        ),
    }


def phases_a_token(record: LaneRecord) -> dict[str, float]:
    """Milliseconds a token by phase, prefill left out; empty before the first token."""
    steps = list(record.steps)
    tokens = sum(len(step.committed) for step in steps)
    phases = dict.fromkeys((*STACKED, *(span.phase for step in steps for span in step.spans)))
    return {phase: sum(phase_ms(step, phase) for step in steps) / tokens for phase in phases} if tokens else {}


def _stacks(run: Run, theme: Theme) -> Json:
    """A bar a lane: what a token took, phase upon phase."""
    records = list(run.lanes.values())
    sums = [phases_a_token(record) for record in records]
    phases = dict.fromkeys(phase for each in sums for phase in each)
    data = [_stack(phase, sums, records, theme) for phase in phases if any(each.get(phase) for each in sums)]
    said = [
        f"{record.header.title} {sum(each.values()):.1f} ms a token, "
        + ", ".join(f"{value:.1f} {phase}" for phase, value in each.items() if value)
        for record, each in zip(records, sums, strict=True)
        if each
    ]
    return {
        "data": data,
        "layout": _layout(
            records, theme, "stack", axis(theme, "measured: ms a token, prefill left out", rangemode="tozero")
        ),
        "cursor": {},
        "alt": f"Where the time of a token goes: {'; '.join(said)}." if said else "No lane has run yet.",
        "min_width": NARROWEST,
    }


def _stack(phase: str, sums: list[dict[str, float]], records: list[LaneRecord], theme: Theme) -> Json:
    values = [each.get(phase, 0.0) for each in sums]
    shares = [value / sum(each.values()) if each else 0.0 for value, each in zip(values, sums, strict=True)]
    return {
        "type": "bar",
        "orientation": "h",
        "name": drawn_token(phase, 24),
        "y": list(range(len(records))),
        "x": [round(value, 4) for value in values],
        "customdata": [[None, record.header.lane] for record in records],
        "marker": _marker(phase, theme),
        "hovertext": [
            f"<b>{drawn_token(phase, 24)}</b> · {value:.2f} ms a token, {share:.0%} of the lane's"
            for value, share in zip(values, shares, strict=True)
        ],
        "hoverinfo": "text",
    }


def _spans(record: LaneRecord) -> Iterator[tuple[int | None, Span]]:
    """All spans with their step's index; none for the prefill's."""
    yield from ((None, span) for span in record.prefill)
    for step in list(record.steps):
        yield from ((step.index, span) for span in step.spans)


def _trace(phase: str, bars: list[tuple[int, int | None, Span]], records: list[LaneRecord], theme: Theme) -> Json:
    name = drawn_token(phase, 24)
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
        "marker": _marker(phase, theme),
        "hovertemplate": f"<b>{name}</b> · %{{customdata[2]}} ms<br>{where}<extra></extra>",
    }


def _marker(phase: str, theme: Theme) -> Json:
    """A phase's colour and pattern."""
    colour, pattern = theme.phases.get(phase, (theme.soft, "+"))
    marker: Json = {"color": colour, "line": {"width": 0}}
    if pattern:
        marker["pattern"] = {
            "shape": pattern,
            "fillmode": "overlay",
            "fgcolor": theme.card,
            "size": 5,
            "solidity": 0.25,
        }
    return marker


def describe(records: list[LaneRecord]) -> str:
    """The picture in words."""
    parts = [
        f"{record.header.title} {lane_end(record):,.0f} ms in {plural(len(record.steps), 'step')}" for record in records
    ]
    return f"Where the time goes, each lane on its own clock: {'; '.join(parts)}." if parts else "No lane has run yet."


TIMELINE = Overview(
    name="timeline",
    title="Where the time goes",
    label="Prefill, draft, verify, accept and commit of every lane, measured on the machine that ran it.",
    axes=("ms", "phases"),
    build=build,
)
