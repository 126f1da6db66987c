"""Lookahead's Jacobi window: one row an iteration, one column a position, and the n-grams that lie on its diagonals.

Column j of row i guesses the token i + j positions after the root, which is column 0 of row 0. The lowest row is
what this pass computed. A diagonal read downwards, key first, is an n-gram for the pool.
"""

from __future__ import annotations

from dataclasses import dataclass

from explorer.events import LaneHeader
from explorer.figures.base import NEXT, Json, View, payload_as, step_name
from explorer.figures.labels import drawn_token, plotly_text, plural, quoted, visible
from explorer.figures.theme import MONO, Theme, axis, base_layout
from explorer.payloads import LookaheadPayload
from explorer.trace import Step

ROW = 34
"""Pixels per row."""
CELL = 60
"""Least pixels per position."""
LIMIT = 7


@dataclass(frozen=True)
class Cell:
    """A guess in the window."""

    row: int
    column: int
    """Which diagonal it lies on."""
    position: int
    """Positions after the root."""
    token_id: int
    text: str


def cells_of(payload: LookaheadPayload) -> list[Cell]:
    """Root, window, and the new row below it."""
    cells = [Cell(0, 0, 0, payload.key, payload.key_text)]
    rows = payload.window_before
    for i, row in enumerate(rows):
        first = 1 if i == 0 else 0
        cells += [Cell(i, first + j, i + first + j, token.token_id, token.text) for j, token in enumerate(row)]
    if payload.window_after and rows:
        # While the window grows, a new row's first guess has been dropped: the root has moved on by one.
        first = 1 if len(payload.window_after) > len(rows) else 0
        new = payload.window_after[-1]
        cells += [
            Cell(len(rows), first + j, len(rows) + first + j, token.token_id, token.text) for j, token in enumerate(new)
        ]
    return cells


def diagonals(cells: list[Cell]) -> dict[int, list[Cell]]:
    """Cells by diagonal, top down."""
    lines: dict[int, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.row):
        lines.setdefault(cell.column, []).append(cell)
    return lines


def fates(payload: LookaheadPayload, cells: list[Cell]) -> dict[int, str]:
    """By diagonal: "added" or "refreshed", where the pool took its n-gram in this step."""
    added = {(ngram.key, ngram.rest) for ngram in payload.added}
    refreshed = {(ngram.key, ngram.rest) for ngram in payload.refreshed}
    found = {}
    for column, line in diagonals(cells).items():
        ngram = (line[0].token_id, tuple(cell.token_id for cell in line[1:]))
        if ngram in added or ngram in refreshed:
            found[column] = "added" if ngram in added else "refreshed"
    return found


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One step's window, before the pass, and the row that the pass computed."""
    payload = payload_as(step, LookaheadPayload)
    if payload is None:
        return {"data": [], "layout": {"height": ROW}, "alt": ""}
    cells = cells_of(payload)
    taken = fates(payload, cells)
    rows, columns = max(cell.row for cell in cells) + 1, max(cell.position for cell in cells) + 1
    names = ["oldest", *(f"iteration {row + 1}" for row in range(1, rows - 1)), "this pass"]
    data = [_heatmap(step, cells, taken, rows, columns, theme), *_links(cells, taken, theme), _root_frame(theme)]
    layout = {
        "height": 58 + ROW * rows,
        "xaxis": {
            "range": [-0.5, columns - 0.5],
            "tickvals": list(range(columns)),
            "ticktext": ["root", *(f"+{place}" for place in range(1, columns))],
        },
        "yaxis": {"range": [rows - 0.5, -0.5], "tickvals": list(range(rows)), "ticktext": names[-rows:]},
    }
    return {"data": data, "layout": layout, "alt": describe(step, payload, cells), "min_width": 84 + CELL * columns}


def settled(step: Step) -> dict[int, tuple[int, int | str]]:
    """What the step settled, by position after the root: token and node."""
    path = [step.nodes[node] for node in (0, *step.accepted)]
    found: dict[int, tuple[int, int | str]] = {node.depth: (node.token_id, node.id) for node in path}
    return found | {path[-1].depth + 1: (step.next_token.token_id, NEXT)}


def node_at(step: Step, cell: Cell) -> int | str | None:
    """The node that a guess foresaw: the same token at the same position, settled or drafted."""
    token, node = settled(step).get(cell.position, (None, None))
    if token == cell.token_id:
        return node
    same = (node.id for node in step.nodes if (node.depth, node.token_id) == (cell.position, cell.token_id))
    return next(same, None)


def _heatmap(step: Step, cells: list[Cell], taken: dict[int, str], rows: int, columns: int, theme: Theme) -> Json:
    """The grid: colour by iteration, text by token."""
    shades: list[list[int | None]] = [[None] * columns for _ in range(rows)]
    texts = [[""] * columns for _ in range(rows)]
    hover = [[""] * columns for _ in range(rows)]
    ids: list[list[list[int | str | None]]] = [[[None] for _ in range(columns)] for _ in range(rows)]
    lines = diagonals(cells)
    for cell in cells:
        shades[cell.row][cell.position] = min(cell.row, len(theme.ramp) - 1)
        texts[cell.row][cell.position] = drawn_token(cell.text, LIMIT)
        hover[cell.row][cell.position] = _about(cell, lines[cell.column], taken.get(cell.column))
        ids[cell.row][cell.position] = [node_at(step, cell)]
    ids[0][0] = [0]
    last = len(theme.ramp) - 1
    scale = [[place / last, colour] for place, colour in enumerate(theme.ramp)]
    return {
        "type": "heatmap",
        "z": shades,
        "zmin": 0,
        "zmax": last,
        "colorscale": scale,
        "showscale": False,
        "xgap": 5,
        "ygap": 5,
        "text": texts,
        "texttemplate": "%{text}",
        "hovertext": hover,
        "hoverinfo": "text",
        "hoverongaps": False,
        "customdata": ids,
        "meta": "nodes",
        "textfont": {"family": MONO, "size": 12, "color": theme.ink},
    }


def _about(cell: Cell, line: list[Cell], fate: str | None) -> str:
    """The hover label."""
    if cell.row == 0 and cell.column == 0:
        lead = "the root: decided, not a guess"
    else:
        lead = f"guess for position +{cell.position}, {plural(cell.row, 'row')} below the oldest"
    ngram = plotly_text(" ".join(visible(member.text, 16) for member in line))
    became = {"added": "new in the pool", "refreshed": "was in the pool, now young again"}.get(
        fate or "", "not in the pool"
    )
    end = f"<br>diagonal: {ngram}<br>{became}" if fate else f"<br>diagonal: {ngram}"
    return f"<b>{drawn_token(cell.text, 60)}</b><br>{lead}{end}"


def _links(cells: list[Cell], taken: dict[int, str], theme: Theme) -> list[Json]:
    """Short strokes between the cells of each diagonal that became an n-gram: solid new, dotted seen before."""
    traces = []
    for fate, dash in (("refreshed", "dot"), ("added", "solid")):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for column, line in diagonals(cells).items():
            if taken.get(column) == fate:
                for cell in line[:-1]:
                    xs += [cell.position + 0.40, cell.position + 0.60, None]
                    ys += [cell.row + 0.34, cell.row + 0.66, None]
        if xs:
            line_style = {"color": theme.roles["hit"].line, "width": 3, "dash": dash}
            traces.append(
                {"type": "scatter", "mode": "lines", "x": xs[:-1], "y": ys[:-1], "line": line_style,
                 "hoverinfo": "skip", "name": fate}
            )  # fmt: skip
    return traces


def _root_frame(theme: Theme) -> Json:
    """A frame round the root, which is no guess."""
    style = theme.roles["root"]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [-0.46, 0.46, 0.46, -0.46, -0.46],
        "y": [-0.43, -0.43, 0.43, 0.43, -0.43],
        "line": {"color": style.line, "width": style.width},
        "hoverinfo": "skip",
    }


def describe(step: Step, payload: LookaheadPayload, cells: list[Cell]) -> str:
    """The picture in words."""
    guesses = plural(len(cells) - 1, "guess", "guesses")
    state = "still filling" if payload.warm_up else "full"
    return (
        f"Jacobi window of {step_name(step)}, {state}: {plural(len(payload.window_before), 'row')} and the new one, "
        f"{guesses} after the root {quoted(payload.key_text)}."
    )


def layout(theme: Theme) -> Json:
    """Positions above, iterations at the left."""
    return base_layout(theme) | {
        "margin": {"l": 84, "r": 2, "t": 48, "b": 4},
        "xaxis": axis(theme, "position after the root", side="top", showgrid=False),
        "yaxis": axis(theme, showgrid=False),
    }


WINDOW = View(
    name="window",
    title="Jacobi window",
    label="Guesses for the coming positions, one row an iteration; diagonals become n-grams for the pool.",
    kind="plotly",
    applies=lambda step: payload_as(step, LookaheadPayload) is not None,
    build=build,
    layout=layout,
)
