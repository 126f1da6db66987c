"""Acceptance of all lanes on one axis: by depth of the draft, by step, by place in the text. Counts, no times."""

from __future__ import annotations

from explorer.figures.base import Json, Overview
from explorer.figures.labels import drawn_token, plural
from explorer.figures.theme import LaneStyle, Theme, axis, base_layout, legend_above
from explorer.metrics import by_depth, drafts_kept
from explorer.runs import LaneRecord, Run

WINDOW = 8
"""Steps in a mean: single steps of eight lanes would hide one another."""

TOKENS = 16
"""Output tokens in a mean along the text."""

DEFINITIONS = {
    "depth": "Acceptance at a depth: the steps that accepted a draft of that depth, over the steps that had drafts "
    "of that depth verified.",
    "tested": "Acceptance of tested drafts: of the steps whose path reached the parent of such a draft, those that "
    "accepted one. Drafts below a rejected one are not tested and do not count.",
    "steps": "Accepted length: drafts of a step that reached the output; "
    f"the line is the mean of the last {WINDOW} steps.",
    "position": "Drafted share along the text: of the output tokens up to a place, the share that accepted drafts "
    f"gave; the last {TOKENS} tokens count. Lanes with equal outputs have the same words at the same place.",
}
DEPTH = "depth of the draft (1: right after the root)"
TITLES = {
    "depth": DEPTH,
    "tested": DEPTH,
    "steps": "target passes after the prefill",
    "position": "output tokens after the prefill's",
}
VALUES = {
    "depth": "steps that accepted one, of those that tried",
    "tested": "accepted, of those tested",
    "steps": f"accepted drafts, mean of {WINDOW} steps",
    "position": f"tokens from drafts, of the last {TOKENS}",
}
OF_ALL = (
    ("target pass", "one forward pass of the target over all rows of a step; the prefill's is not counted."),
    ("tokens per target pass", "output tokens of the steps over their target passes: plain decoding has 1."),
    (
        "mean acceptance length",
        "1 + accepted drafts over target passes: what vLLM and llama.cpp report. It exceeds the tokens per pass a "
        "little where the end of the output cut drafts off.",
    ),
    ("accepted of drafted", "accepted drafts over drafted nodes. In a tree most must lose, so it says little there."),
    ("accepted of depth", "accepted drafts over the depths of the trees: how much of the longest branch came true."),
)
"""Terms that every kind of acceptance needs."""


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
    deep = horizontal in ("depth", "tested")
    draw = {"depth": _depths, "tested": _tested, "steps": _lengths, "position": _places}[horizontal]
    drawn = [draw(record, theme.lanes[place % len(theme.lanes)]) for place, record in enumerate(records)]
    top = {"rangemode": "tozero"} if horizontal == "steps" else {"range": [0, 1.04], "tickformat": ".0%"}
    layout = base_layout(theme) | {
        "height": 330,
        "showlegend": True,
        "legend": legend_above(theme.ink),
        "margin": {"l": 52, "r": 12, "t": 30, "b": 44},
        "xaxis": axis(theme, TITLES[horizontal], tickformat=",d", **({"dtick": 1} if deep else {})),
        "yaxis": axis(theme, VALUES[horizontal], **top),
    }
    return {
        "data": [trace for trace in drawn if trace is not None],
        "layout": layout,
        "cursor": {} if deep else {r.header.lane: _cursor(r, horizontal) for r in records},
        "alt": describe(records, horizontal),
        "definitions": [[VALUES[horizontal], DEFINITIONS[horizontal]], *map(list, OF_ALL)],
        "min_width": 320,
    }


def _cursor(record: LaneRecord, horizontal: str) -> list[list[float]]:
    """Per step its range on the axis."""
    if horizontal == "steps":
        return [[i + 0.5, i + 1.5] for i in range(len(record.steps))]
    ranges, end = [], 0.5
    for step in list(record.steps):
        ranges.append([end, end + len(step.committed)])
        end += len(step.committed)
    return ranges


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
    return _of_depths(
        record,
        style,
        [(each.depth, each.share) for each in depths],
        [
            f"{each.accepted:,} of {plural(each.tried, 'step')} that had drafts so deep accepted one"
            f"<br>{plural(each.nodes, 'draft')} verified there"
            for each in depths
        ],
    )


def _tested(record: LaneRecord, style: LaneStyle) -> Json | None:
    depths = [each for each in by_depth(list(record.steps)) if each.tested]
    return _of_depths(
        record,
        style,
        [(each.depth, each.tested_share) for each in depths],
        [
            f"{each.accepted:,} of {plural(each.tested, 'step')} that came to test a draft there accepted one"
            for each in depths
        ],
    )


def _of_depths(record: LaneRecord, style: LaneStyle, points: list[tuple[int, float]], about: list[str]) -> Json | None:
    if not points:
        return None
    line = _line(record, style, [depth for depth, _ in points], [share for _, share in points])
    return line | {
        "hovertext": [
            f"<b>{line['name']}</b>, depth {depth}: {share:.0%}<br>{said}"
            for (depth, share), said in zip(points, about, strict=True)
        ],
        "hoverinfo": "text",
        "customdata": [[None, record.header.lane] for _ in points],
    }


def _places(record: LaneRecord, style: LaneStyle) -> Json | None:
    """A point a step, where its last token stands."""
    steps = list(record.steps)
    if not any(len(step.nodes) > 1 for step in steps):
        return None
    drafted: list[int] = []
    points: list[tuple[int, float, int]] = []
    for place, step in enumerate(steps):
        kept = drafts_kept(step)
        drafted += [1] * kept + [0] * (len(step.committed) - kept)
        if step.committed:
            last = drafted[-TOKENS:]
            points.append((len(drafted), sum(last) / len(last), place))
    line = _line(record, style, [at for at, _, _ in points], [share for _, share, _ in points])
    return line | {
        "hovertext": [
            f"<b>{line['name']}</b>, token {at}: {share:.0%} of the last {min(at, TOKENS)} from drafts"
            for at, share, _ in points
        ],
        "hoverinfo": "text",
        "customdata": [[place, record.header.lane] for _, _, place in points],
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
            words = _by_depth([(each.depth, each.share) for each in depths])
        elif horizontal == "tested":
            words = _by_depth([(each.depth, each.tested_share) for each in depths if each.tested])
        elif horizontal == "position":
            tokens = sum(len(step.committed) for step in steps)
            words = f"{sum(map(drafts_kept, steps)) / max(tokens, 1):.0%} of {plural(tokens, 'token')} from drafts"
        else:
            mean = sum(map(drafts_kept, steps)) / len(steps)
            words = f"{mean:.2f} accepted drafts a step in {plural(len(steps), 'step')}"
        parts.append(f"{record.header.title} {words}")
    said = "; ".join(parts) if parts else "no lane has drafted yet"
    return f"{DEFINITIONS[horizontal]} {said[0].upper()}{said[1:]}."


def _by_depth(shares: list[tuple[int, float]]) -> str:
    return ", ".join(f"{share:.0%} at depth {depth}" for depth, share in shares[:10])


ACCEPTANCE = Overview(
    name="acceptance",
    title="Acceptance",
    label="How often drafts are accepted by depth, and how many a step, in all lanes. Counts: no machine matters.",
    axes=("depth", "tested", "steps", "position"),
    build=build,
)
