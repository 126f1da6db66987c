"""Medusa: what each head proposed. Head k guesses the token k positions below the root, whatever stands between."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.events import LaneHeader
from explorer.figures.base import NEXT, Json, View, path_end, payload_as, step_name
from explorer.figures.labels import prob_fine, quoted
from explorer.figures.reasons import role_of
from explorer.figures.tables import Cell, cell, prob_cell, token_cell
from explorer.figures.theme import Theme
from explorer.payloads import MedusaPayload
from explorer.trace import Step, TopToken

_BEST_FIRST = {"accepted": 0, "cut": 1, "rejected": 2, "unreached": 3}


def heads_of(step: Step) -> tuple[tuple[TopToken, ...], ...]:
    """The heads' best tokens; none where the step has none."""
    payload = payload_as(step, MedusaPayload)
    return payload.heads if payload is not None else ()


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One pair of columns a head, one row a rank; the class says what became of the token in the tree."""
    heads = heads_of(step)
    taken = _taken(step)
    ranks = max((len(head) for head in heads), default=0)
    rows = []
    for rank in range(ranks):
        cells = [cell(str(rank + 1), "soft")]
        for depth, head in enumerate(heads, start=1):
            cells += _pair(step, depth, head[rank], taken) if rank < len(head) else [cell(""), cell("")]
        rows.append(cells)
    right = sum(bool(head) and taken.get(depth) == head[0].token_id for depth, head in enumerate(heads, start=1))
    known = sum(depth in taken for depth in range(1, len(heads) + 1))
    caption = f"The target agreed with the first choice of {right} of the {known} heads that this step could check."
    captions = [*([caption] if known > 1 else []), *_threshold(step)]
    best = ", ".join(f"head {k} {quoted(head[0].text, 16)}" for k, head in enumerate(heads, start=1) if head)
    return {
        "caption": " ".join(captions),
        "rows": rows,
        "alt": f"Medusa heads of {step_name(step)}, first choices: {best}.",
    }


def _threshold(step: Step) -> list[str]:
    """Under typical acceptance: what a draft right after the root had to exceed."""
    payload = payload_as(step, MedusaPayload)
    if payload is None or payload.threshold is None or payload.entropy is None:
        return []
    words = f"entropy {payload.entropy:.2f} nats, threshold {prob_fine(payload.threshold)}"
    return [f"Typical acceptance after the root: {words}."]


def _taken(step: Step) -> dict[int, int]:
    """Token by depth that the target settled in this step."""
    taken = {step.nodes[node].depth: step.nodes[node].token_id for node in step.accepted}
    return taken | {step.nodes[path_end(step)].depth + 1: step.next_token.token_id}


def _pair(step: Step, depth: int, top: TopToken, taken: dict[int, int]) -> list[Cell]:
    """A head's token and its probability; with the node that carries it, the best off where several do."""
    nodes = [node for node in step.nodes if node.depth == depth and node.token_id == top.token_id]
    nodes.sort(key=lambda node: _BEST_FIRST.get(role_of(step, node), 4))
    role: str = "dropped"
    node: int | str | None = None
    if nodes:
        role, node = role_of(step, nodes[0]), nodes[0].id
    if role not in ("accepted", "cut") and taken.get(depth) == top.token_id:  # named by the head, missed by the tree
        role, node = "bonus", NEXT
    lit = [each.id for each in nodes[1:]] or None  # the same token below other parents
    return [token_cell(top.text, role, node=node, lit=lit), prob_cell(top.prob, "draft", node=node, lit=lit)]


def _columns(header: LaneHeader, steps: Sequence[Step]) -> list[str]:
    count = max((len(heads_of(step)) for step in steps), default=0)
    return ["rank", *(name for k in range(1, count + 1) for name in (f"head {k}: +{k}", "prob."))]


HEADS = View(
    name="heads",
    title="Medusa heads",
    label="Each head's best tokens for its own position, and what became of them in the tree.",
    kind="table",
    applies=lambda step: payload_as(step, MedusaPayload) is not None,
    build=build,
    columns=_columns,
    legend=("accepted", "bonus", "rejected", "unreached", "dropped"),
)
