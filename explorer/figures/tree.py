"""The draft tree, left to right like text: one column a position, one box a token.

Drawn one to one in pixels: the data coordinates are pixels, and the axes are tied to each other, so that a box
is as wide as its text wherever it is shown. Boxes are closed paths, one trace per status, because that draws
several times faster than a layout shape per node.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from explorer.events import LaneHeader
from explorer.figures.base import NEXT, Json, View, next_committed, path_end, step_name
from explorer.figures.labels import drawn_token, plotly_text, plural, prob, prob_fine, quoted, visible
from explorer.figures.reasons import branch_role, reason, role_of, unsaid
from explorer.figures.theme import MONO, Theme, base_layout, hidden_axis
from explorer.trace import Node, Step

MARGIN = 4
"""Pixels around the drawing, for the thickest line."""


GENTLE = (0.0, 0.14, 0.3, 0.5, 0.7, 0.86, 1.0)
STEEP = (0.0, 0.08, 0.16, 0.26, 0.38, 0.5, 0.62, 0.74, 0.84, 0.92, 1.0)
"""Where the curve of an edge is sampled: as often as the eye needs."""

CROWD = 22
"""Rows above which a drawing is crowded."""

LARGE, BRIEF = 30, 14
"""Trees of more drafts than LARGE have a short version; BRIEF drafts in it, and more where more were judged."""

Point = tuple[int, int]


@dataclass(frozen=True)
class Box:
    """A node with its place, in pixels."""

    node: int | str
    parent: int | None
    role: str
    text: str
    """As drawn: visible, cut, not yet escaped."""
    number: str
    left: int = 0
    right: int = 0
    middle: int = 0


@dataclass(frozen=True)
class Sizes:
    """Pixels that hold for a whole drawing."""

    pitch: int
    """From one row to the next."""
    half: int
    """Half the height of a box."""
    font: float
    gap: int
    """Between two columns."""
    limit: int
    """Longest token text, in characters."""
    crowded: bool
    """So many rows that nodes which were not reached go without their numbers (hover shows them)."""


def tidy_rows(children: Sequence[Sequence[int]]) -> list[float]:
    """Leaves get rows 0, 1, 2, ... in reading order; a parent stands midway between its outer children."""
    order: list[int] = []
    stack = [0]
    while stack:  # root first, right to left; turned round below: every node after all that is under it
        node = stack.pop()
        order.append(node)
        stack.extend(children[node])
    rows = [0.0] * len(children)
    next_row = 0
    for node in reversed(order):
        below = children[node]
        if below:
            rows[node] = (rows[below[0]] + rows[below[-1]]) / 2
        else:
            rows[node], next_row = float(next_row), next_row + 1
    return rows


def sizes_for(leaves: int, columns: int) -> Sizes:
    """Many rows are set closer, many columns narrower; text never falls under 11 pixels."""
    pitch, half, font = next(
        (size for most, *size in ((8, 38, 14, 13), (14, 32, 13, 12.5), (CROWD, 27, 10, 12)) if leaves <= most),
        [22, 9, 11],
    )
    gap, limit = (46, 12) if columns <= 4 else (34, 10) if columns <= 6 else (24, 8)
    return Sizes(int(pitch), int(half), font, gap, limit, leaves > CROWD)


def char_cells(text: str) -> int:
    """Width of monospaced text in character cells."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    none = sum(unicodedata.category(char) in ("Mn", "Me", "Cf") for char in text)
    return len(text) + wide - none


def brief_nodes(step: Step) -> frozenset[int] | None:
    """What the short version of a large tree keeps: what was judged, and the best drafts. None for smaller trees."""
    drafts = step.nodes[1:]
    if len(drafts) <= LARGE:
        return None
    kept = {0, *(node.id for node in drafts if node.status != "unreached")}
    unjudged = [node for node in drafts if node.id not in kept]
    for node in sorted(unjudged, key=lambda node: (-(node.score or 0.0), node.id)):
        path = {node.id}
        while (parent := step.nodes[min(path)].parent or 0) not in kept:
            path.add(parent)
        if len(kept) - 1 + len(path) <= BRIEF:
            kept |= path
    return frozenset(kept) if len(kept) < len(step.nodes) else None


def plan(step: Step, kept: frozenset[int] | None = None) -> tuple[list[Box], Sizes]:
    """Every node of the step (or the kept), and the target's own token after the accepted path, with their places."""
    total = len(step.nodes)
    chosen = range(total) if kept is None else sorted(kept)
    children: list[list[int]] = [[] for _ in range(total + 1)]
    children[path_end(step)].append(total)  # the target's own token stands above the drafts that it beat
    for place in chosen[1:]:
        children[step.nodes[place].parent or 0].append(place)
    rows = tidy_rows(children)
    depths = [0]
    for node in step.nodes[1:]:
        depths.append(depths[node.parent or 0] + 1)
    depths.append(depths[path_end(step)] + 1)
    shown = [*chosen, total]
    leaves = sum(not children[place] for place in shown)
    sizes = sizes_for(leaves, max(depths[place] for place in shown) + 1)
    boxes = _labelled(step, sizes)
    tops, columns = [rows[place] for place in shown], [depths[place] for place in shown]
    return _placed([boxes[place] for place in shown], tops, columns, sizes), sizes


def _labelled(step: Step, sizes: Sizes) -> list[Box]:
    """Boxes without places. The small number is the drafter's probability, or the target's where there is none."""
    boxes = []
    for node in step.nodes:
        number = prob(node.target_prob if node.draft_prob is None else node.draft_prob)
        unsaid = number == "–" or (sizes.crowded and node.status == "unreached")
        number = "root" if node.parent is None else "" if unsaid else number
        boxes.append(Box(node.id, node.parent, role_of(step, node), visible(node.text, sizes.limit), number))
    role = "bonus" if next_committed(step) else "cut"
    own = step.next_token
    boxes.append(Box(NEXT, path_end(step), role, visible(own.text, sizes.limit), prob(own.probability)))
    return boxes


def _placed(boxes: list[Box], rows: list[float], depths: list[int], sizes: Sizes) -> list[Box]:
    """Columns as wide as their longest text."""
    widths = [44.0] * (max(depths) + 1)
    for box, depth in zip(boxes, depths, strict=True):
        number = char_cells(box.number) * (sizes.font - 2.5) * 0.61
        content = char_cells(box.text) * sizes.font * 0.61 + number + (26 if number else 18)
        widths[depth] = max(widths[depth], content)
    lefts = [MARGIN]
    for width in widths:
        lefts.append(lefts[-1] + round(width) + sizes.gap)
    top = MARGIN + sizes.half
    return [
        replace(
            box,
            left=lefts[depth],
            right=lefts[depth + 1] - sizes.gap,
            middle=round(top + row * sizes.pitch),
        )
        for box, row, depth in zip(boxes, rows, depths, strict=True)
    ]


def _edge(parent: Box, child: Box) -> list[Point]:
    """A curve from a box to the next: a cubic with level ends, a straight line needs two points."""
    wide, high = child.left - parent.right, child.middle - parent.middle
    if not high:
        return [(parent.right, parent.middle), (child.left, child.middle)]
    return [
        (
            round(parent.right + wide * (1.5 * t * (1 - t) + t**3)),
            round(parent.middle + high * t * t * (3 - 2 * t)),
        )
        for t in (STEEP if abs(high) > 2 * wide else GENTLE)
    ]


def _outline(box: Box, half: int) -> list[Point]:
    """A closed rounded rectangle; three points a corner look round at this size."""
    left, right, top, bottom = box.left, box.right, box.middle - half, box.middle + half
    far, near = 6, 2
    return [
        (left, top + far), (left + near, top + near), (left + far, top),
        (right - far, top), (right - near, top + near), (right, top + far),
        (right, bottom - far), (right - near, bottom - near), (right - far, bottom),
        (left + far, bottom), (left + near, bottom - near), (left, bottom - far),
        (left, top + far),
    ]  # fmt: skip


def _paths(paths: Sequence[Sequence[Point]]) -> Json:
    """Several paths as one trace, with gaps between them."""
    xs: list[int | None] = []
    ys: list[int | None] = []
    for path in paths:
        if xs:
            xs.append(None)
            ys.append(None)
        xs.extend(x for x, _ in path)
        ys.extend(y for _, y in path)
    return {"type": "scatter", "x": xs, "y": ys, "mode": "lines", "hoverinfo": "skip"}


def _lines(boxes: list[Box], sizes: Sizes, theme: Theme) -> list[Json]:
    """Edges below boxes, what matters above what does not: one trace per role."""
    edges, outlines = [], []
    placed = {box.node: box for box in boxes}
    for role in ("unreached", "rejected", "cut", "root", "accepted", "bonus"):
        those = [box for box in boxes if box.role == role]
        if not those:
            continue
        style = theme.roles[role]
        line = {"color": style.line, "width": style.width, "dash": style.dash}
        below_root = [_edge(placed[box.parent], box) for box in those if box.parent is not None]
        if below_root:
            edges.append(_paths(below_root) | {"line": line})
        closed = _paths([_outline(box, sizes.half) for box in those])
        outlines.append(closed | {"line": line, "fill": "toself", "fillcolor": style.fill})
    return edges + outlines


def _texts(boxes: list[Box], sizes: Sizes, theme: Theme) -> list[Json]:
    """Token texts at the left of their boxes, probabilities at the right."""
    numbered = [box for box in boxes if box.number]
    common = {"type": "scatter", "mode": "text", "hoverinfo": "skip"}
    font = {"family": MONO, "size": sizes.font, "color": [theme.roles[box.role].text for box in boxes]}
    small = {"family": MONO, "size": sizes.font - 2.5, "color": theme.soft}
    return [
        common
        | {
            "x": [box.left + 5 for box in boxes],
            "y": [box.middle for box in boxes],
            "text": [plotly_text(box.text) for box in boxes],
            "textposition": "middle right",
            "textfont": font,
        },
        common
        | {
            "x": [box.right - 4 for box in numbered],
            "y": [box.middle for box in numbered],
            "text": [plotly_text(box.number) for box in numbered],
            "textposition": "middle left",
            "textfont": small,
        },
    ]


def _branch_marks(step: Step, boxes: list[Box], sizes: Sizes, theme: Theme) -> list[Json]:
    """A square on the corner of what the context proposed: filled where it alone did, open where both did."""
    traces: list[Json] = []
    for role in ("copied", "both"):
        those = [box for box in boxes if box.node != NEXT and branch_role(step, step.nodes[int(box.node)]) == role]
        style = theme.roles[role]
        if those:
            traces.append(
                {"type": "scatter", "mode": "markers", "name": style.words, "hoverinfo": "skip", "cliponaxis": False,
                 "x": [box.left + 1 for box in those], "y": [box.middle - sizes.half + 1 for box in those],
                 "marker": {"symbol": "square", "size": 8, "color": style.fill if role == "both" else style.line,
                            "line": {"width": 2, "color": style.line}}}
            )  # fmt: skip
    return traces


def _hover_points(step: Step, boxes: list[Box], sizes: Sizes) -> Json:
    """Unseen markers over the boxes, which carry node ids, half widths and heights, and the hover labels."""
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "nodes",
        "x": [(box.left + box.right) // 2 for box in boxes],
        "y": [box.middle for box in boxes],
        "marker": {"size": 2 * sizes.half, "opacity": 0},
        "customdata": [[box.node, (box.right - box.left) / 2, sizes.half] for box in boxes],
        "hovertext": [
            _about_next(step) if box.node == NEXT else _about(step, step.nodes[int(box.node)]) for box in boxes
        ],
        "hoverinfo": "text",
    }


def _about(step: Step, node: Node) -> str:
    """The hover label of a drafted node."""
    lines = [f"<b>{drawn_token(node.text, 60)}</b>", plotly_text(reason(step, node))]
    branch = branch_role(step, node)
    if branch is not None:
        lines.append("copied from the context" if branch == "copied" else "proposed by the drafter and by the context")
    if node.parent is not None:
        path = node.score if node.parent else None  # below the root the path is the node itself
        numbers = [("drafter", node.draft_prob), ("path", path), ("target", node.target_prob)]
        known = [f"{name} {prob_fine(value)}" for name, value in numbers if value is not None]
        lines += [" · ".join(known)] if known else []
    if node.target_top and node.status != "unreached":
        best = ", ".join(f"{drawn_token(top.text, 12)} {prob_fine(top.prob)}" for top in node.target_top[:2])
        lines.append(f"target goes on: {best}")
    return "<br>".join(lines)


def _about_next(step: Step) -> str:
    """The hover label of the target's own token."""
    own = step.next_token
    how = {"argmax": "its first choice", "sample": "drawn at random", "residual": "drawn after a rejection"}
    return (
        f"<b>{drawn_token(own.text, 60)}</b><br>the target's own token, {how[own.origin]}{unsaid(step)}"
        f"<br>target {prob_fine(own.probability)}"
    )


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One step's tree; a large one in short too."""
    drawn = _drawing(step, theme, None) | {"alt": describe(step)}
    kept = brief_nodes(step)
    if kept is None:
        return drawn
    words = {"words": "fewer nodes", "all": f"all {len(step.nodes) - 1} nodes"}
    alt = f"{describe(step)} Drawn: {len(kept) - 1} of them, what was judged and the best of the others."
    return drawn | {"brief": _drawing(step, theme, kept) | words | {"alt": alt}}


def _drawing(step: Step, theme: Theme, kept: frozenset[int] | None) -> Json:
    """The tree, or the kept nodes of it."""
    boxes, sizes = plan(step, kept)
    width = max(box.right for box in boxes) + MARGIN
    height = max(box.middle for box in boxes) + sizes.half + MARGIN
    layout = {"height": height, "xaxis": {"range": [0, width]}, "yaxis": {"range": [height, 0]}}
    data = [*_lines(boxes, sizes, theme), *_texts(boxes, sizes, theme)]
    data += [*_branch_marks(step, boxes, sizes, theme), _hover_points(step, boxes, sizes)]
    return {"data": data, "layout": layout, "min_width": width, "mark": "box"}


def describe(step: Step) -> str:
    """The picture in words."""
    drafted = plural(len(step.nodes) - 1, "drafted token")
    path = " → ".join(quoted(step.nodes[node].text) for node in step.accepted)
    agreed = f"accepted: {path}" if path else "none accepted"
    return (
        f"Draft tree of {step_name(step)}: {drafted} below {quoted(step.nodes[0].text)}; {agreed}; "
        f"the target's own token: {quoted(step.next_token.text)}."
    )


def rare(step: Step) -> list[str]:
    """Roles that few lanes have."""
    roles = {branch_role(step, node) for node in step.nodes[1:]} | {role_of(step, node) for node in step.nodes[1:]}
    unsaid_role = set() if next_committed(step) else {"cut"}
    return [role for role in ("copied", "both", "cut") if role in roles | unsaid_role]


def layout(theme: Theme) -> Json:
    """Both axes in pixels, tied one to one; the drawing keeps to the left, where reading starts."""
    tied = {"scaleanchor": "y", "scaleratio": 1, "constrain": "domain", "constraintoward": "left"}
    return base_layout(theme) | {
        "xaxis": hidden_axis(**tied),
        "yaxis": hidden_axis(constrain="domain", constraintoward="top"),
        "hoverdistance": 44,
    }


TREE = View(
    name="tree",
    title="Draft tree",
    label="The candidates that one pass of the target verified, left to right, one column a position.",
    kind="plotly",
    applies=lambda step: True,
    build=build,
    layout=layout,
    legend=("accepted", "bonus", "rejected", "unreached"),
    rare=rare,
)
