"""The tree-attention mask of the pass: a row attends to the columns that have a mark.

Every row sees the whole cache, its ancestors and itself (SpecInfer, arXiv 2305.09781, section 4; Medusa, arXiv
2401.10774, section 2.1.2). The cached positions are one column; nodes are rows and columns in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, step_name
from explorer.figures.labels import drawn_token, plural, quoted
from explorer.figures.reasons import role_of
from explorer.figures.theme import MONO, Theme, axis, base_layout
from explorer.passes import ancestors, cached_before, window_rows
from explorer.trace import Node, Step

LABELS = 104
"""Pixels left of the rows, for their tokens."""
TOP, FOOT = 30, 40
CACHE_COLUMN = -2
"""One column of room between the cache and the root, so that the cache is seen to be something else."""

MARKS = {
    "root": "square",
    "accepted": "square",
    "rejected": "square-x",
    "unreached": "square-open",
    "cut": "square-open-dot",
}
"""A row's marks by what became of its node: told apart without colour too."""


@dataclass(frozen=True)
class Seen:
    """A mark: the row of `node` attends to `column` (None: all cached positions)."""

    node: Node
    column: Node | None


def marks_of(step: Step) -> list[Seen]:
    """All marks, row by row, the cache first. No cached positions: no such column."""
    cached = cached_before(step) > 0
    marks: list[Seen] = []
    for node, path in zip(step.nodes, ancestors(step), strict=True):
        marks += [Seen(node, None)] if cached else []
        marks += [Seen(node, step.nodes[column]) for column in path]
    return marks


def pitch_of(rows: int) -> int:
    """Pixels from row to row; texts never fall under 11 pixels."""
    return 24 if rows <= 16 else 18 if rows <= 32 else 14


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One trace of square marks: a point carries [row's node, column's node or null]."""
    rows = len(step.nodes)
    pitch = pitch_of(rows)
    tokens = [drawn_token(node.text, 10) for node in step.nodes]
    columns = [CACHE_COLUMN, *range(rows)] if rows <= 16 else [CACHE_COLUMN, *range(0, rows, 5)]
    names = ["cache", *(str(place) for place in columns[1:])]
    lines = {"tickfont": {"family": MONO, "size": 11, "color": theme.ink}}
    layout = {
        "height": TOP + FOOT + pitch * rows,
        "xaxis": {"range": [CACHE_COLUMN - 0.7, rows - 0.4], "tickvals": columns, "ticktext": names},
        "yaxis": {"range": [rows - 0.5, -0.5], "tickvals": list(range(rows)), "ticktext": tokens} | lines,
        "annotations": [_foot(step, theme)],
    }
    width = LABELS + pitch * (rows + 3)
    data = [_points(step, pitch, theme)]
    return {"data": data, "layout": layout, "alt": describe(step), "min_width": width, "mark": "cross"}


def _points(step: Step, pitch: int, theme: Theme) -> Json:
    marks = marks_of(step)
    roles = [role_of(step, mark.node) for mark in marks]
    cached = plural(cached_before(step), "cached position")
    tokens = [drawn_token(node.text, 20) for node in step.nodes]
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "nodes",
        "x": [CACHE_COLUMN if mark.column is None else mark.column.id for mark in marks],
        "y": [mark.node.id for mark in marks],
        "customdata": [[mark.node.id, None if mark.column is None else mark.column.id] for mark in marks],
        "hovertext": [_about(mark, tokens, cached) for mark in marks],
        "hoverinfo": "text",
        "cliponaxis": False,
        "marker": {
            "symbol": [MARKS.get(role, "square-open") for role in roles],
            "size": pitch - 4,
            "color": [theme.roles[role].line for role in roles],
            "line": {"width": 1, "color": theme.card},
        },
    }


def _about(mark: Seen, tokens: list[str], cached: str) -> str:
    row = f"<b>{tokens[mark.node.id]}</b> attends to "
    if mark.column is None:
        return f"{row}all {cached}"
    return f"{row}itself" if mark.column is mark.node else f"{row}<b>{tokens[mark.column.id]}</b>"


def _foot(step: Step, theme: Theme) -> Json:
    """Under the picture: what the columns are, and which rows of the pass are not drawn."""
    words = f"columns: {plural(cached_before(step), 'cached position')} as one, then the nodes"
    window = window_rows(step)
    words += f"; {plural(window, 'window row')} of the same pass not drawn" if window else ""
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 0, "yref": "paper", "yanchor": "top", "yshift": -10}
    return place | {"text": words, "showarrow": False, "font": {"size": 12, "color": theme.soft}}


def describe(step: Step) -> str:
    """The picture in words: each row with what it sees."""
    rows = len(step.nodes)
    if rows == 1:
        cached = plural(cached_before(step), "cached position")
        return f"Attention mask of {step_name(step)}: 1 row, which sees the {cached} and itself.{_riders(step)}"
    paths = ancestors(step)[1:9]
    texts = [[quoted(step.nodes[place].text, 12) for place in path] for path in paths]
    shown = [f"{path[-1]} sees {' '.join(path[:-1])} and itself" for path in texts]
    left = rows - 1 - len(shown)
    rest = f"; and {plural(left, 'row')} more" if left else ""
    return (
        f"Attention mask of {step_name(step)}: {plural(rows, 'row')}, each sees the "
        f"{plural(cached_before(step), 'cached position')}, its ancestors and itself. "
        f"{'; '.join(shown)}{rest}.{_riders(step)}"
    )


def _riders(step: Step) -> str:
    """A sentence on the rows that are not drawn, where there are any."""
    window = window_rows(step)
    return f" {plural(window, 'window row')} of the same pass see the root and one another." if window else ""


def layout(theme: Theme) -> Json:
    """Square cells; the drawing keeps to the left."""
    tied: Json = {"scaleanchor": "y", "scaleratio": 1, "constrain": "domain", "constraintoward": "left"}
    return base_layout(theme) | {
        "margin": {"l": LABELS, "r": 4, "t": TOP, "b": FOOT},
        "xaxis": axis(theme, side="top", **tied),
        "yaxis": axis(theme, constrain="domain", constraintoward="top"),
    }


MASK = View(
    name="mask",
    title="Attention mask",
    label="Which row of the target's pass attends to which column: the cache, its ancestors and itself.",
    kind="plotly",
    applies=lambda step: True,
    build=build,
    layout=layout,
    legend=("accepted", "rejected", "unreached"),
    rare=lambda step: ["cut"] if any(role_of(step, node) == "cut" for node in step.nodes) else [],
)
