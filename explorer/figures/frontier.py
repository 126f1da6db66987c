"""EAGLE's frontier: every drafted token at its depth and cumulative score. The re-ranking is a level cut through it.

A node's score is the product of the drafter's probabilities along its path, so it never rises from left to
right. The best of each depth are ringed: they were drafted further. What lies above the cut was verified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log10

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, payload_as, step_name
from explorer.figures.labels import drawn_token, plotly_text, plural, prob_fine, quoted
from explorer.figures.reasons import role_of
from explorer.figures.swarm import LABEL, Spot, spread
from explorer.figures.theme import MONO, Theme, axis, base_layout
from explorer.payloads import EaglePayload, FeatureError, FrontierNode
from explorer.trace import Step

HEIGHT = 360
PLOT = HEIGHT - 54
"""Pixels between the top and the bottom axis."""
COLUMN = 92
"""Least pixels per depth."""
SIDE = 0.11
"""From one mark to the next beside it, in columns."""
LIMIT = 8
"""Longest text, in characters."""
CHARACTER = 7.0
"""Pixels per character of a text."""
RING = 10.0
"""Pixels from the middle of a mark to where its ring ends, and a little air."""
TOP = 0.12
"""Upper end of the axis, as a power of ten."""
TICKS = [1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0.00001]
LOWEST = 1e-6
"""Scores below are drawn here: a logarithm needs a floor."""


@dataclass(frozen=True)
class Mark:
    """A pool node with its place."""

    item: FrontierNode
    depth: int
    score: float
    role: str
    x: float = 0.0
    """Its depth, and a little more where another mark stands there already."""
    label_x: float | None = None
    """Where its text begins; None where there is no room for it."""
    beside: int = 0
    """Marks that stand aside between it and its text."""
    room: int = LIMIT
    """Characters of its text that fit before the next column's marks."""


def marks_of(step: Step, payload: EaglePayload) -> list[Mark]:
    """All listed pool nodes, in pool order, with what became of them."""
    marks = []
    for depth, level in enumerate(payload.frontier, start=1):
        for item in level:
            exists = item.node is not None and item.node < len(step.nodes)
            role = role_of(step, step.nodes[item.node]) if exists and item.node is not None else "dropped"
            role = role if role in ("accepted", "dropped") else "kept"
            marks.append(Mark(item, depth, max(item.score, LOWEST), role))
    return marks


def floor_of(marks: list[Mark]) -> float:
    """Lower end of the axis, as a power of ten."""
    return log10(min((mark.score for mark in marks), default=0.1)) - 0.12


def placed(marks: list[Mark]) -> list[Mark]:
    """The marks with their places: the accepted first, then the best scores."""
    bottom = floor_of(marks)
    heights = [PLOT * (log10(mark.score) - bottom) / (TOP - bottom) for mark in marks]
    order = sorted(range(len(marks)), key=lambda place: (marks[place].role != "accepted", -marks[place].score))
    spots = spread([mark.depth for mark in marks], heights, order)
    made = []
    for mark, spot, height in zip(marks, spots, heights, strict=True):
        ahead = [h for other, h in zip(marks, heights, strict=True) if other.depth == mark.depth + 1]
        room = _room(spot, any(abs(h - height) < RING + LABEL / 2 for h in ahead))
        label = None if spot.label is None or not room else round(mark.depth + SIDE * (spot.label + 1), 2)
        x = round(mark.depth + SIDE * spot.slot, 2)
        made.append(replace(mark, x=x, label_x=label, beside=spot.beside, room=room))
    return made


def _room(spot: Spot, blocked: bool) -> int:
    """How long a text may be: where a mark of the next column stands at its height it has to end before that."""
    if not blocked or spot.label is None:
        return LIMIT
    pixels = COLUMN * (1 - SIDE * (spot.label + 1)) - RING
    left = int(pixels / CHARACTER) - (3 if spot.beside else 0)
    return min(left, LIMIT) if left >= 2 else 0


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One step's frontier."""
    payload = payload_as(step, EaglePayload)
    marks = placed(marks_of(step, payload)) if payload is not None else []
    depths = max((mark.depth for mark in marks), default=1)
    data = [*_edges(marks, theme), *_cut(marks, depths, theme), _rings(marks, theme)]
    for role in ("dropped", "kept", "accepted"):
        errors = {error.node: error for error in payload.feature_errors} if payload is not None else {}
        data.append(_points([mark for mark in marks if mark.role == role], role, errors, theme))
    data.append(_labels(marks, theme))
    columns = list(range(1, depths + 1))
    layout = {
        "height": HEIGHT,
        "xaxis": {
            "range": [0.7, depths + 1.1],
            "tickvals": columns,
            "ticktext": [f"+{depth}" for depth in columns],
        },
        "yaxis": {"range": [floor_of(marks), TOP]},
    }
    return {"data": data, "layout": layout, "alt": describe(step, payload, marks), "min_width": 64 + COLUMN * depths}


def _edges(marks: list[Mark], theme: Theme) -> list[Json]:
    """Lines from parent to child, the accepted path above the others."""
    traces: list[Json] = []
    for accepted, role in ((False, "dropped"), (True, "accepted")):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for mark in marks:
            parent = mark.item.parent
            if parent is None or not 0 <= parent < len(marks) or (mark.role == "accepted") != accepted:
                continue
            xs += [marks[parent].x, mark.x, None]
            ys += [marks[parent].score, mark.score, None]
        line = {"color": theme.roles[role].line if accepted else theme.grid, "width": 2.5 if accepted else 1.2}
        if xs:
            traces.append(
                {"type": "scatter", "mode": "lines", "x": xs[:-1], "y": ys[:-1], "line": line, "hoverinfo": "skip"}
            )
    return traces


def _cut(marks: list[Mark], depths: int, theme: Theme) -> list[Json]:
    """The level of the worst node that the re-ranking kept."""
    kept = [mark.score for mark in marks if mark.role != "dropped"]
    if not kept or len(kept) == len(marks):
        return []
    level = min(kept) * 0.97
    per_pixel = (TOP - floor_of(marks)) / PLOT
    blocked = any(mark.depth == 1 and abs(log10(mark.score / level)) < 20 * per_pixel for mark in marks)
    line = {"color": theme.roles["kept"].line, "width": 1.2, "dash": "dash"}
    return [
        {
            "type": "scatter",
            "mode": "lines+text",
            "x": [0.7, depths + 1.1],
            "y": [level, level],
            "line": line,
            "text": ["", "kept ↑"] if blocked else ["kept ↑", ""],
            "textposition": "top left" if blocked else "top right",
            "hoverinfo": "skip",
            "textfont": {"size": 11, "color": theme.roles["kept"].text},
        }
    ]


def _rings(marks: list[Mark], theme: Theme) -> Json:
    """Rings round what was drafted further."""
    ringed = [mark for mark in marks if mark.item.expanded]
    style = theme.roles["expanded"]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [mark.x for mark in ringed],
        "y": [mark.score for mark in ringed],
        "marker": {
            "symbol": style.symbol,
            "size": 14,
            "color": style.line,
            "line": {"width": style.width, "color": style.line},
        },
        "hoverinfo": "skip",
        "name": style.words,
    }


def _points(marks: list[Mark], role: str, errors: dict[int, FeatureError], theme: Theme) -> Json:
    """The nodes of one role."""
    style = theme.roles[role]
    size = {"accepted": 11, "kept": 9, "dropped": 7}[role]
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "nodes",
        "name": style.words,
        "x": [mark.x for mark in marks],
        "y": [mark.score for mark in marks],
        "marker": {
            "symbol": style.symbol,
            "size": size,
            "color": style.line,
            "line": {"width": 1.2, "color": style.line},
        },
        "customdata": [[mark.item.node] for mark in marks],
        "hovertext": [_about(mark, errors.get(mark.item.node or 0), theme) for mark in marks],
        "hoverinfo": "text",
    }


def _about(mark: Mark, error: FeatureError | None, theme: Theme) -> str:
    """The hover label; at accepted nodes with how well the drafter foresaw the target's feature."""
    item = mark.item
    further = "; drafted further" if item.expanded else ""
    feature = "" if error is None else f"<br>feature: error {error.distance:.2f}, cosine {error.cosine:.2f}"
    return (
        f"<b>{drawn_token(item.text, 60)}</b><br>{plotly_text(theme.roles[mark.role].words)}{further}"
        f"<br>drafter {prob_fine(item.draft_prob)} · score {prob_fine(item.score)}{feature}"
    )


def _labels(marks: list[Mark], theme: Theme) -> Json:
    """Token texts with a halo, so that lines below do not strike them out."""
    named = [mark for mark in marks if mark.label_x is not None]
    return {
        "type": "scatter",
        "mode": "text",
        "cliponaxis": False,
        "x": [mark.label_x for mark in named],
        "y": [mark.score for mark in named],
        "text": [
            drawn_token(mark.item.text, mark.room) + (f" +{mark.beside}" if mark.beside else "") for mark in named
        ],
        "textposition": "middle right",
        "textfont": {
            "family": MONO,
            "size": 11.5,
            "color": [theme.roles[mark.role].text for mark in named],
            "shadow": ", ".join([f"0 0 2px {theme.card}"] * 3),
        },
        "hoverinfo": "skip",
    }


def describe(step: Step, payload: EaglePayload | None, marks: list[Mark]) -> str:
    """The picture in words."""
    pool, kept = (payload.pool_nodes, payload.kept) if payload is not None else (0, 0)
    best = max(marks, key=lambda mark: mark.score, default=None)
    lead = f"; the best is {quoted(best.item.text)} with a score of {prob_fine(best.score)}" if best else ""
    by = "by the re-ranking" if payload is None or payload.tree == "dynamic" else f"as the {payload.tree} tree"
    return f"Draft frontier of {step_name(step)}: {plural(pool, 'token')} scored, {kept} kept {by}{lead}."


def layout(theme: Theme) -> Json:
    """Depth to the right, score on a logarithmic axis."""
    return base_layout(theme) | {
        "margin": {"l": 66, "r": 4, "t": 8, "b": 46},
        "xaxis": axis(theme, "depth: positions below the root", showgrid=False, showline=True),
        "yaxis": axis(
            theme,
            "score: path probability",
            type="log",
            tickvals=TICKS,
            ticktext=[f"{tick:.5f}".rstrip("0").rstrip(".") for tick in TICKS],
        ),
        "hoverdistance": 16,
    }


FRONTIER = View(
    name="frontier",
    title="Frontier",
    label="What the drafter tried: each token at its depth and cumulative score, and what the re-ranking kept.",
    kind="plotly",
    applies=lambda step: payload_as(step, EaglePayload) is not None,
    build=build,
    layout=layout,
    legend=("accepted", "kept", "dropped", "expanded"),
)
