"""Why this token: what drafter and target thought along the accepted path, and of the drafts that lost."""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.figures.base import NEXT, Json, View, next_committed, step_name
from explorer.figures.labels import plural, quoted
from explorer.figures.reasons import on_path, reason, role_of, unsaid
from explorer.figures.tables import Cell, cell, prob_cell, token_cell
from explorer.figures.theme import Theme
from explorer.trace import Node, Step

LOSERS = 2
"""Rejected siblings shown at each position, likeliest to the drafter first."""

RUNNERS_UP = 3
"""Other choices of the target shown where nothing was drafted."""

COLUMNS = ("at", "token", "drafter", "target", "why")


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One row per token that was judged."""
    rows = []
    for place, parent in enumerate(on_path(step), start=1):
        if place <= len(step.accepted):
            rows.append(_node_row(step, step.nodes[step.accepted[place - 1]]))
        else:
            rows.append(_own_row(step, place))
        rows += [_node_row(step, node) for node in _losers(step, parent)]
    if len(step.nodes) == 1:
        rows += _runners_up(step)
    judged = plural(len(rows), "token")
    return {"caption": "", "rows": rows, "alt": f"Why each token of {step_name(step)} was taken or not: {judged}."}


def _losers(step: Step, parent: int) -> list[Node]:
    below = [node for node in step.nodes if node.parent == parent and node.status == "rejected"]
    return sorted(below, key=lambda node: (-(node.draft_prob or 0.0), node.id))[:LOSERS]


def _node_row(step: Step, node: Node) -> list[Cell]:
    role = role_of(step, node)
    return [
        cell(f"+{node.depth}", "soft", node=node.id),
        token_cell(node.text, role, node=node.id),
        prob_cell(node.draft_prob, "draft", node=node.id),
        prob_cell(node.target_prob, "verify", node=node.id),
        cell(reason(step, node), node=node.id),
    ]


def _own_row(step: Step, place: int) -> list[Cell]:
    own = step.next_token
    how = {"argmax": "its first choice", "sample": "drawn at random", "residual": "drawn after a rejection"}
    return [
        cell(f"+{place}", "soft", node=NEXT),
        token_cell(own.text, "bonus" if next_committed(step) else "cut", node=NEXT),
        prob_cell(None, node=NEXT),
        prob_cell(own.probability, "verify", node=NEXT),
        cell(f"the target's own token: {how[own.origin]}{unsaid(step)}", node=NEXT),
    ]


def _runners_up(step: Step) -> list[list[Cell]]:
    """Where nothing was drafted: what else the target might have said."""
    others = [top for top in step.nodes[0].target_top if top.token_id != step.next_token.token_id]
    taken = quoted(step.next_token.text, 16)
    return [
        [cell("+1", "soft"), token_cell(top.text), prob_cell(None), prob_cell(top.prob, "verify"),
         cell(f"not taken: the target takes {taken}")]
        for top in others[:RUNNERS_UP]
    ]  # fmt: skip


PROBS = View(
    name="probs",
    title="Why this token",
    label="Probabilities that drafter and target give to each token that was judged, and why it was taken or not.",
    kind="table",
    applies=lambda step: True,
    build=build,
    columns=lambda header, steps: list(COLUMNS),
)
