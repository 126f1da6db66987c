"""Jacobi decoding: the block's guesses, one row a pass and one column a position. Settled tokens never change again.

Row 0 of a block holds its first guesses, every row below what a pass made of them. A step knows its own pass
only, so the picture reads the steps before it, back to the pass that began the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from explorer.events import LaneHeader
from explorer.figures.base import NEXT, Json, View, payload_as, step_name
from explorer.figures.labels import count_word, drawn_token, plotly_text, plural
from explorer.figures.theme import MONO, Theme, axis, base_layout
from explorer.payloads import JacobiPayload, WindowToken
from explorer.trace import Step

ROW, CELL = 32, 50
"""Least pixels per row and per column."""
MOST = 12
"""Passes shown: the latest."""
LIMIT = 6
ROLES = ("root", "fixed", "bonus", "open", "changed", "chance")


@dataclass(frozen=True)
class Cell:
    """A token of the block after one pass."""

    row: int
    place: int
    """In prompt and output."""
    text: str
    role: str
    node: int | str | None = None
    before: str | None = None
    """The token that stood here before the pass, where it changed."""


def block_of(steps: Sequence[Step]) -> list[JacobiPayload]:
    """The passes over the block of the last step, oldest first; not more than MOST."""
    passes: list[JacobiPayload] = []
    for step in reversed(steps):
        payload = payload_as(step, JacobiPayload)
        if payload is None or (passes and payload.iteration != passes[0].iteration - 1):
            break
        passes.insert(0, payload)
        if payload.iteration == 0 or len(passes) == MOST:
            break
    return passes


def cells_of(passes: Sequence[JacobiPayload]) -> list[Cell]:
    """The guesses that the first of the passes was given, then what each pass made of them.

    The block of the last pass are the step's nodes: the row above it shows them, and so does the pass where it
    left them as they were.
    """
    if not passes:
        return []
    first = passes[0]
    chance = len(first.block) - first.random
    only = len(passes) == 1
    cells = [
        Cell(
            0, first.position + place, token.text,
            "root" if not place else "chance" if place >= chance else "open", place if only else None,
        )
        for place, token in enumerate(first.block)
    ]  # fmt: skip
    for row, payload in enumerate(passes, start=1):
        last = row == len(passes)
        cells.append(Cell(row, payload.position, payload.block[0].text, "root", 0 if last else None))
        cells += [_cell(payload, row, place, token, last) for place, token in enumerate(payload.outputs, start=1)]
    return cells if only else _verified(cells, passes[-1], len(passes) - 1)


def _verified(cells: list[Cell], payload: JacobiPayload, row: int) -> list[Cell]:
    """The cells with the last pass's nodes in the row of the pass before it, and the guesses that were filled in."""
    nodes = {payload.position + place: place for place in range(len(payload.block))}
    linked = [replace(cell, node=nodes.get(cell.place)) if cell.row == row else cell for cell in cells]
    drawn = {cell.place for cell in linked if cell.row == row}
    filled = [
        Cell(row, place, payload.block[node].text, "chance", node)
        for place, node in nodes.items()
        if place not in drawn and node
    ]
    return linked + filled


def _cell(payload: JacobiPayload, row: int, place: int, token: WindowToken, last: bool) -> Cell:
    """What a pass computed for the position `place` behind the root."""
    at = payload.position + place
    if place < payload.fixed:
        return Cell(row, at, token.text, "fixed", place if last else None)
    before = payload.block[place] if place < len(payload.block) else None
    changed = before is not None and before.token_id != token.token_id
    old = before.text if before is not None and changed else None
    if place == payload.fixed:
        return Cell(row, at, token.text, "bonus", NEXT if last else None, old)
    return Cell(row, at, token.text, "changed" if changed else "open", None, old)


def story(header: LaneHeader, steps: Sequence[Step], theme: Theme) -> Json:
    """The block as it stands after the last of the steps."""
    passes = block_of(steps)
    cells = cells_of(passes)
    if not passes:
        return {"data": [], "layout": {"height": ROW}, "alt": "", "min_width": CELL}
    left, right = min(cell.place for cell in cells), max(cell.place for cell in cells)
    width, rows = right - left + 1, len(passes) + 1
    start = passes[0].iteration
    names = ["guesses" if not start else f"pass {start}", *(f"pass {start + n}" for n in range(1, rows))]
    data = [_grid(cells, left, width, rows, theme), *_frontier(passes, left, theme), _changes(cells, left, theme)]
    layout = {
        "height": 58 + ROW * rows,
        "xaxis": {
            "range": [-0.5, width - 0.5],
            "tickvals": list(range(width)),
            "ticktext": ["root", *(f"+{place}" for place in range(1, width))],
        },
        "yaxis": {"range": [rows - 0.5, -0.5], "tickvals": list(range(rows)), "ticktext": names},
    }
    return {"data": data, "layout": layout, "alt": describe(steps[-1], passes[-1]), "min_width": 70 + CELL * width}


def _grid(cells: Sequence[Cell], left: int, width: int, rows: int, theme: Theme) -> Json:
    """A heat map with a ground per role; texts are tokens."""
    shades: list[list[int | None]] = [[None] * width for _ in range(rows)]
    texts = [[""] * width for _ in range(rows)]
    hover = [[""] * width for _ in range(rows)]
    ids: list[list[list[int | str | None]]] = [[[None] for _ in range(width)] for _ in range(rows)]
    for cell in cells:
        column = cell.place - left
        shades[cell.row][column] = ROLES.index(cell.role)
        texts[cell.row][column] = drawn_token(cell.text, LIMIT)
        hover[cell.row][column] = _about(cell, theme)
        ids[cell.row][column] = [cell.node]
    plain = {"root": theme.grid, "chance": theme.ramp[1]}
    grounds = [plain.get(role, theme.roles[role].fill) for role in ROLES]
    last = len(ROLES) - 1
    steps = [[edge, colour] for n, colour in enumerate(grounds) for edge in (n / (last + 1), (n + 1) / (last + 1))]
    return {
        "type": "heatmap",
        "z": shades,
        "zmin": -0.5,
        "zmax": last + 0.5,
        "colorscale": steps,
        "showscale": False,
        "xgap": 3,
        "ygap": 3,
        "text": texts,
        "texttemplate": "%{text}",
        "hovertext": hover,
        "hoverinfo": "text",
        "hoverongaps": False,
        "customdata": ids,
        "meta": "nodes",
        "textfont": {"family": MONO, "size": 11.5, "color": theme.ink},
    }


def _frontier(passes: Sequence[JacobiPayload], left: int, theme: Theme) -> list[Json]:
    """A staircase right of what is settled after each pass."""
    style = theme.roles["fixed"]
    xs: list[float] = []
    ys: list[float] = []
    for row, payload in enumerate(passes, start=1):
        edge = payload.position + payload.fixed - left + 0.5
        xs += [edge, edge]
        ys += [row - 0.5, row + 0.5]
    line = {"color": style.line, "width": 3}
    return [{"type": "scatter", "mode": "lines", "x": xs, "y": ys, "line": line, "hoverinfo": "skip"}]


def _changes(cells: Sequence[Cell], left: int, theme: Theme) -> Json:
    """A small corner in every cell that the pass changed: seen without colour."""
    style = theme.roles["changed"]
    changed = [cell for cell in cells if cell.before is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": style.words,
        "x": [cell.place - left + 0.38 for cell in changed],
        "y": [cell.row - 0.3 for cell in changed],
        "marker": {"symbol": style.symbol, "size": 8, "color": style.line},
        "hoverinfo": "skip",
    }


def _about(cell: Cell, theme: Theme) -> str:
    """The hover label."""
    words = plotly_text(theme.roles[cell.role].words)
    was = f"<br>before this pass: {drawn_token(cell.before, 40)}" if cell.before is not None else ""
    return f"<b>{drawn_token(cell.text, 60)}</b><br>{words}{was}"


def settled(payload: JacobiPayload) -> int:
    """Positions behind the root that are known now: the confirmed ones, and the target's token after them."""
    return min(payload.fixed, len(payload.outputs))


def describe(step: Step, payload: JacobiPayload) -> str:
    """The picture in words."""
    known = f"{count_word(settled(payload))} of {plural(len(payload.outputs), 'position')} settled"
    kept = f"{plural(payload.committed, 'token')} committed" if payload.committed else "nothing committed yet"
    return f"Jacobi block of {step_name(step)}, pass {payload.iteration + 1}: {known}, {kept}."


def layout(theme: Theme) -> Json:
    """Positions above, passes at the left."""
    return base_layout(theme) | {
        "margin": {"l": 66, "r": 4, "t": 48, "b": 4},
        "xaxis": axis(theme, "position after the first root", side="top", showgrid=False),
        "yaxis": axis(theme, showgrid=False),
    }


JACOBI = View(
    name="jacobi",
    title="Jacobi block",
    label="The block's guesses pass by pass: one row a pass, one column a position; settled tokens left of the line.",
    kind="plotly",
    applies=lambda step: payload_as(step, JacobiPayload) is not None,
    build=lambda header, step, theme: story(header, [step], theme),
    story=story,
    layout=layout,
    legend=("fixed", "bonus", "changed", "open", "chance"),
)
