"""Acceptance of all lanes on one axis: by depth, and the accepted length step after step. Counts, no times."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.figures.base import Json, Overview
from explorer.figures.labels import drawn_token, plural
from explorer.figures.theme import LaneStyle, Theme, axis, base_layout, legend_above
from explorer.metrics import drafts_kept
from explorer.runs import LaneRecord, Run
from explorer.trace import Step

WINDOW = 8
"""Steps in a mean: single steps of eight lanes would hide one another."""

DEFINITIONS = {
    "depth": "Acceptance at a depth: the steps that accepted a draft of that depth, over the steps that had drafts "
    "of that depth verified.",
    "steps": "Accepted length: drafts of a step that reached the output; "
    f"the line is the mean of the last {WINDOW} steps.",
}
TITLES = {"depth": "depth of the draft (1: right after the root)", "steps": "target passes after the prefill"}
VALUES = {"depth": "steps that accepted one, of those that tried", "steps": f"accepted drafts, mean of {WINDOW} steps"}


@dataclass(frozen=True)
class Depth:
    """What a lane did at one depth."""

    depth: int
    tried: int
    """Steps that had at least one draft of this depth verified."""
    accepted: int
    """Steps that accepted one of them."""
    nodes: int
    """Drafts of this depth, all steps together."""

    @property
    def share(self) -> float:
        """Accepted over tried."""
        return self.accepted / self.tried


def by_depth(steps: list[Step]) -> list[Depth]:
    """A line per depth at which something was drafted. Drafts that the end of the output cut off were accepted."""
    tried: dict[int, int] = {}
    accepted: dict[int, int] = {}
    nodes: dict[int, int] = {}
    for step in steps:
        depths = [node.depth for node in step.nodes[1:]]
        for depth in depths:
            nodes[depth] = nodes.get(depth, 0) + 1
        for depth in set(depths):
            tried[depth] = tried.get(depth, 0) + 1
        for depth in {step.nodes[node].depth for node in step.accepted}:
            accepted[depth] = accepted.get(depth, 0) + 1
    return [Depth(depth, tried[depth], accepted.get(depth, 0), nodes[depth]) for depth in sorted(tried)]


def trailing_means(values: list[int], window: int = WINDOW) -> list[float]:
    """The mean of each value and those before it, `window` values at most."""
    means = []
    for end in range(1, len(values) + 1):
        part = values[max(end - window, 0) : end]
        means.append(sum(part) / len(part))
    return means


def build(run: Run, theme: Theme, horizontal: str) -> Json:
    """One line a lane that drafts; dash and mark differ as well as colour."""
    records = list(run.lanes.values())
    draw = _depths if horizontal == "depth" else _lengths
    drawn = [draw(record, theme.lanes[place % len(theme.lanes)]) for place, record in enumerate(records)]
    top = {"range": [0, 1.04], "tickformat": ".0%"} if horizontal == "depth" else {"rangemode": "tozero"}
    layout = base_layout(theme) | {
        "height": 330,
        "showlegend": True,
        "legend": legend_above(theme.ink),
        "margin": {"l": 52, "r": 12, "t": 30, "b": 44},
        "xaxis": axis(theme, TITLES[horizontal], tickformat=",d", **({"dtick": 1} if horizontal == "depth" else {})),
        "yaxis": axis(theme, VALUES[horizontal], **top),
    }
    places = [] if horizontal == "depth" else records
    return {
        "data": [trace for trace in drawn if trace is not None],
        "layout": layout,
        "cursor": {r.header.lane: [[i + 0.5, i + 1.5] for i in range(len(r.steps))] for r in places},
        "alt": describe(records, horizontal),
        "min_width": 320,
    }


def _line(record: LaneRecord, style: LaneStyle, xs: list[int], ys: list[float]) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": drawn_token(record.header.title, 22).replace("␣", " "),
        "x": xs,
        "y": [round(value, 4) for value in ys],
        "line": {"color": style.colour, "dash": style.dash, "width": 2.2},
        "marker": {"symbol": style.symbol, "size": 8, "color": style.colour, "maxdisplayed": 14},
    }


def _depths(record: LaneRecord, style: LaneStyle) -> Json | None:
    depths = by_depth(list(record.steps))
    if not depths:
        return None
    line = _line(record, style, [each.depth for each in depths], [each.share for each in depths])
    about = [
        f"<b>{line['name']}</b>, depth {each.depth}: {each.share:.0%}<br>{each.accepted:,} of "
        f"{plural(each.tried, 'step')} that had drafts so deep accepted one"
        f"<br>{plural(each.nodes, 'draft')} verified there"
        for each in depths
    ]
    return line | {
        "hovertext": about,
        "hoverinfo": "text",
        "customdata": [[None, record.header.lane] for _ in depths],
    }


def _lengths(record: LaneRecord, style: LaneStyle) -> Json | None:
    steps = list(record.steps)
    if not any(len(step.nodes) > 1 for step in steps):
        return None
    kept = [drafts_kept(step) for step in steps]
    means = trailing_means(kept)
    line = _line(record, style, list(range(1, len(steps) + 1)), means)
    about = [
        f"<b>{line['name']}</b>, step {place}: {plural(count, 'draft')} accepted of {len(step.nodes) - 1:,}"
        f"<br>mean of the last {min(place, WINDOW)}: {mean:.2f}"
        for place, (step, count, mean) in enumerate(zip(steps, kept, means, strict=True), start=1)
    ]
    return line | {
        "hovertext": about,
        "hoverinfo": "text",
        "customdata": [[place, record.header.lane] for place in range(len(steps))],
    }


def describe(records: list[LaneRecord], horizontal: str) -> str:
    """The picture in words, its definition first."""
    parts = []
    for record in records:
        steps = list(record.steps)
        depths = by_depth(steps)
        if not depths:
            continue
        if horizontal == "depth":
            words = ", ".join(f"{each.share:.0%} at depth {each.depth}" for each in depths[:10])
        else:
            mean = sum(map(drafts_kept, steps)) / len(steps)
            words = f"{mean:.2f} accepted drafts a step in {plural(len(steps), 'step')}"
        parts.append(f"{record.header.title} {words}")
    said = "; ".join(parts) if parts else "no lane has drafted yet"
    return f"{DEFINITIONS[horizontal]} {said[0].upper()}{said[1:]}."


ACCEPTANCE = Overview(
    name="acceptance",
    title="Acceptance",
    label="How often drafts are accepted by depth, and how many a step, in all lanes. Counts: no machine matters.",
    axes=("depth", "steps"),
    build=build,
)
