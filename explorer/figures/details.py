"""Everything that a step says of one node: for the panel that explains the token which is hovered or pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from explorer.events import LaneHeader
from explorer.figures.base import NEXT, Json, View, next_committed, path_end, step_name
from explorer.figures.explain import explain, explain_next
from explorer.figures.labels import logits, prob_fine, quoted, visible
from explorer.figures.pieces import piece_of
from explorer.figures.reasons import BRANCH, role_of
from explorer.figures.theme import Theme
from explorer.trace import Decision, Node, Step, TopToken

LIMIT = 40
"""Characters of a token's text."""
BEST = 4
"""Alternatives shown."""

FIELDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "id": ("token id", "Number of the token in the vocabulary."),
        "at": ("depth", "Positions below the root."),
        "by": ("proposed by", "Which drafter proposed it in this pass."),
        "rank": ("rank", "Its place among the drafts for the same position, to the drafter; 1 is its favourite."),
        "draft": ("drafter", "The drafter's probability of this token after its parent."),
        "score": ("path score", "The drafter's probabilities multiplied along the path: what trees are ranked by."),
        "target": ("target", "The target's probability of this token, before temperature and filters."),
        "p": ("target, judged", "As the rule saw it: processed, and after earlier siblings were rejected."),
        "q": ("drafter, judged", "As the rule saw it; 1 for a draft that was not drawn but simply proposed."),
        "ratio": ("chance", "The chance of acceptance: target over drafter, at most 1."),
        "draw": ("number drawn", "Uniform between 0 and 1; the draft is accepted where it is under the chance."),
        "left": ("residual mass", "What a rejection left of the target's distribution, before it is renormalised."),
        "over": ("threshold", "What the target's probability had to exceed."),
        "entropy": ("entropy", "Of the target's distribution after the parent, in nats."),
        "lead": ("lead", "Best minus second best logit where the target chose it: near zero, rounding decides."),
    }
)
"""What may be told of a node: label and definition."""

STATUS = {
    "root": "root",
    "accepted": "accepted",
    "rejected": "rejected",
    "unreached": "not reached",
    "cut": "accepted, not added",
}


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """Every node by its id, and the one that decided the step."""
    nodes = {str(node.id): about(header, step, node) for node in step.nodes}
    nodes[NEXT] = about_next(header, step)
    return {"nodes": nodes, "key": str(key_of(step)), "alt": f"Details of {len(nodes)} tokens of {step_name(step)}."}


def key_of(step: Step) -> int | str:
    """The node that decided how far the step went: the best draft that was turned down, else the target's token."""
    lost = [node for node in step.nodes if node.parent == path_end(step)]
    lost.sort(key=lambda node: (-(node.score or node.draft_prob or 0.0), node.id))
    return lost[0].id if lost else NEXT


def about(header: LaneHeader, step: Step, node: Node) -> Json:
    """One node."""
    role = role_of(step, node)
    values: dict[str, str | None] = {
        "id": f"{node.token_id:,}",
        "at": f"+{node.depth}" if node.depth else "0",
        "by": proposed_by(header, node),
        "rank": None if node.rank is None or node.parent is None else str(node.rank + 1),
        "draft": _number(node.draft_prob),
        "score": _number(node.score),
        "target": _number(node.target_prob),
        **(_weighed(node.decision) if node.decision is not None else {}),
    }
    around = {
        "here": _best(step.nodes[node.parent].target_top if node.parent is not None else (), node.token_id),
        "after": _best(node.target_top, None),
    }
    told = _told(step, node.id, node.text, role, STATUS[role], explain(step, node), values)
    return told | around | {"d": node.depth, "then": "After it"}


def about_next(header: LaneHeader, step: Step) -> Json:
    """The target's own token."""
    own, end = step.next_token, step.nodes[path_end(step)]
    raw = raw_probability(step)
    values = {
        "id": f"{own.token_id:,}",
        "at": f"+{end.depth + 1}",
        "by": "the target",
        "target": _number(raw),
        "p": _number(own.probability) if processed(step) else None,
        "lead": logits(own.margin) if own.origin == "argmax" else None,
    }
    added = next_committed(step)
    told = _told(
        step, NEXT, own.text, "bonus" if added else "cut", "target's own" if added else "not added",
        explain_next(step), values,
    )  # fmt: skip
    around = {"here": _best(end.target_top, own.token_id), "after": _best(own.residual or (), None)}
    return told | around | {"d": end.depth + 1, "then": "Left to draw from"}


def raw_probability(step: Step) -> float | None:
    """The target's probability of its own token, before temperature and filters; None where that was not recorded."""
    own, end = step.next_token, step.nodes[path_end(step)]
    found = next((best.prob for best in end.target_top if best.token_id == own.token_id), None)
    return found if found is not None or own.origin != "argmax" else own.probability


def processed(step: Step) -> bool:
    """Was the target's own token chosen from another distribution than its first one?"""
    raw = raw_probability(step)
    return raw is None or abs(raw - step.next_token.probability) > 1e-3 * max(raw, 1e-9)


def _told(
    step: Step, node: int | str, text: str, role: str, status: str, why: str, values: Mapping[str, str | None]
) -> Json:
    """What all entries have. `kin`: nodes that hold the other bytes of its character."""
    told: Json = {
        "t": visible(text, LIMIT),
        "k": role,
        "s": status,
        "why": why,
        "v": {name: value for name, value in values.items() if value is not None},
    }
    piece = piece_of(step, node)
    if piece is not None:
        of = "a character that other tokens complete" if piece.text is None else quoted(piece.text)
        told["part"] = f"bytes {piece.shown} of {of}"
        told["kin"] = [str(each) for each in piece.nodes if each != node]
    return told


def proposed_by(header: LaneHeader, node: Node) -> str:
    """In words: the lane's method, the context, the pool, or the source's own name."""
    if node.parent is None:
        return "the target"
    names = {header.method: header.title, BRANCH: "context", "pool": "n-gram pool"}
    first = names.get(node.source, visible(node.source, 24))
    return first if node.also is None else f"{first} and {names.get(node.also, visible(node.also, 24))}"


def _number(value: float | None) -> str | None:
    return None if value is None else prob_fine(value)


def _weighed(decision: Decision) -> dict[str, str | None]:
    named = {
        "p": decision.target_prob, "q": decision.draft_prob, "ratio": decision.ratio, "draw": decision.draw,
        "left": decision.residual_mass, "over": decision.threshold, "entropy": decision.entropy,
    }  # fmt: skip
    return {name: _number(value) for name, value in named.items()}


def _best(top: Sequence[TopToken], chosen: int | None) -> list[list[Any]]:
    """The target's best tokens: text, probability in words and as a share, and whether it is the one asked about."""
    return [
        [visible(each.text, 16), prob_fine(each.prob), round(min(each.prob, 1.0), 3), each.token_id == chosen]
        for each in top[:BEST]
    ]


def common(header: LaneHeader, lane: Sequence[Step]) -> Json:
    """The fields that some node of the lane has."""
    found = {"id", "at", "by", "target"}
    for step in lane:
        found |= {"lead"} if step.next_token.origin == "argmax" else set()
        found |= {"p"} if processed(step) else set()
        for node in step.nodes[1:]:
            if node.rank is not None:
                found.add("rank")
            if node.draft_prob is not None:
                found.add("draft")
            if node.score is not None:
                found.add("score")
            if node.decision is not None:
                found |= {name for name, value in _weighed(node.decision).items() if value is not None}
    return {"fields": [[name, *words] for name, words in FIELDS.items() if name in found]}


DETAILS = View(
    name="details",
    title="Token",
    label="All that was recorded of one token of the step, and why it was taken or not.",
    kind="details",
    applies=lambda step: True,
    build=build,
    place="aside",
    common=common,
)
