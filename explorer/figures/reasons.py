"""Why a node ended as it did, in words, from the record alone."""

from __future__ import annotations

from explorer.figures.base import drafts_committed, next_committed, payload_as
from explorer.figures.labels import prob, quoted
from explorer.payloads import PromptLookupPayload
from explorer.trace import Decision, Node, Step

BRANCH = "prompt-lookup"
"""Source of nodes that were copied from the context."""


def on_path(step: Step) -> tuple[int, ...]:
    """The root and the accepted nodes below it: where the target was asked for its choice."""
    return (0, *step.accepted)


def taken_after(step: Step, node: int) -> str | None:
    """Text of the token that followed `node`, where it is on the accepted path."""
    path = on_path(step)
    if node not in path:
        return None
    place = path.index(node) + 1
    return step.nodes[path[place]].text if place < len(path) else step.next_token.text


def first_choice(step: Step, node: Node) -> bool:
    """Is this token the most likely one to the target after its parent?"""
    if node.parent is None:
        return False
    top = step.nodes[node.parent].target_top
    return bool(top) and top[0].token_id == node.token_id


def role_of(step: Step, node: Node) -> str:
    """The node's role in pictures: its status, or "cut" where the output ended before it."""
    if node.status == "accepted" and node.id not in step.accepted[: drafts_committed(step)]:
        return "cut"
    return node.status


def unsaid(step: Step) -> str:
    """Why the target's own token is not in the output, to follow other words; empty where it is."""
    if next_committed(step):
        return ""
    return "; not added, the output had ended" if step.committed else "; not added yet, the block is not settled"


def branch_role(step: Step, node: Node) -> str | None:
    """Which drafters proposed it, where that is not the method alone: "copied" or "both"."""
    if node.also is not None:
        return "both"
    if node.source == BRANCH and payload_as(step, PromptLookupPayload) is None:
        return "copied"
    return None


def place_of(step: Step, node: Node) -> int | None:
    """Place of the token among the target's best after its parent, from 1; None where that was not recorded."""
    top = step.nodes[node.parent].target_top if node.parent is not None else ()
    return next((place for place, best in enumerate(top, start=1) if best.token_id == node.token_id), None)


def preferred(step: Step, node: Node) -> str | None:
    """What the target would rather have had in place of an accepted draft; None where that is the draft."""
    if node.parent is None or first_choice(step, node):
        return None
    top = step.nodes[node.parent].target_top
    return top[0].text if top else None


def reason(step: Step, node: Node) -> str:
    """A few words: why this node was accepted, rejected or never judged."""
    if node.status == "root":
        return "decided in the step before"
    if node.decision is not None:
        words = _by_rule(step, node, node.decision)
        if words:
            return words + (", but the output had ended" if role_of(step, node) == "cut" else "")
    if node.status == "unreached":
        return "not reached: its parent was not accepted"
    if node.status == "rejected":
        taken = taken_after(step, node.parent or 0)
        return f"rejected: the target takes {quoted(taken, 16)}" if taken is not None else "rejected"
    words = "accepted: the target's first choice" if first_choice(step, node) else "accepted"
    return f"{words}, but the output had ended" if role_of(step, node) == "cut" else words


def _by_rule(step: Step, node: Node, decision: Decision) -> str:
    """Reasons of rules that look at more than the target's token here; empty for a plain match."""
    if decision.rule == "block match" and node.status != "accepted":
        agrees = decision.wanted == node.token_id
        return "agrees with the target, but the whole block has to" if agrees else "the target takes another token here"
    passed = decision.accepted if decision.accepted is not None else node.status == "accepted"
    verdict = "accepted" if node.status == "accepted" else "passed, but another path won" if passed else "rejected"
    if decision.draw is not None and decision.ratio is not None:
        sign = "under" if passed else "not under"
        return f"{verdict}: drew {prob(decision.draw)}, {sign} the ratio {prob(decision.ratio)}"
    target = decision.target_prob if decision.target_prob is not None else node.target_prob
    rather = preferred(step, node) if passed else None
    though = f", though the target preferred {quoted(rather, 16)}" if rather is not None else ""
    if decision.threshold is not None:
        sign = "over" if passed else "not over"
        return f"{verdict}: the target's {prob(target)} is {sign} the threshold {prob(decision.threshold)}{though}"
    if decision.top_k is not None:
        place = place_of(step, node)
        where = f"place {place} with the target" if place is not None else f"the target gives it {prob(target)}"
        allowed = f"the {decision.top_k} best pass" if decision.top_k > 1 else "only the best passes"
        return f"{verdict}: {where}, {allowed}{though}"
    return ""
