"""Why a node ended as it did, in words, from the record alone."""

from __future__ import annotations

from explorer.figures.base import drafts_committed
from explorer.figures.labels import prob, quoted
from explorer.trace import Decision, Node, Step


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


def reason(step: Step, node: Node) -> str:
    """A few words: why this node was accepted, rejected or never judged."""
    if node.status == "root":
        return "decided in the step before"
    if node.status == "unreached":
        return "not reached: its parent was not accepted"
    if node.decision is not None and (node.decision.draw is not None or node.decision.threshold is not None):
        return _by_rule(node.decision, node.status == "accepted", node.target_prob)
    if node.status == "rejected":
        taken = taken_after(step, node.parent or 0)
        return f"rejected: the target takes {quoted(taken, 16)}" if taken is not None else "rejected"
    words = "accepted: the target's first choice" if first_choice(step, node) else "accepted"
    return f"{words}, but the output had ended" if role_of(step, node) == "cut" else words


def _by_rule(decision: Decision, accepted: bool, target_prob: float | None) -> str:
    """Reasons of rules that draw a number or compare with a threshold."""
    verdict = "accepted" if accepted else "rejected"
    if decision.draw is not None and decision.ratio is not None:
        sign = "under" if decision.draw < decision.ratio else "not under"
        return f"{verdict}: drew {prob(decision.draw)}, {sign} the ratio {prob(decision.ratio)}"
    if decision.threshold is not None:
        return f"{verdict}: the target's {prob(target_prob)} against a threshold of {prob(decision.threshold)}"
    return f"{verdict} by the rule {decision.rule}"
