"""Why a node ended as it did, in a sentence or two with the numbers that decided: for the details of one node.

`reasons.py` says the same in a few words, for hover labels and tables.
"""

from __future__ import annotations

from explorer.figures.base import path_end
from explorer.figures.labels import logits, prob_fine, quoted
from explorer.figures.reasons import on_path, place_of, preferred, reason, role_of, taken_after, unsaid
from explorer.trace import Decision, Node, Step

WIDEST = 20
"""Characters of a token in a sentence."""


def explain(step: Step, node: Node) -> str:
    """A sentence or two on a node."""
    if node.parent is None:
        drafts = ", and every draft hangs below it" if len(step.nodes) > 1 else ""
        return (
            "The root: the target decided it in the step before. It is not in the cache yet, so this pass begins "
            f"with it{drafts}."
        )
    told = _judged(step, node, node.decision) if node.decision is not None else ""
    told = told or _unjudged(step, node)
    end = " The output had ended before it, so it was not added." if role_of(step, node) == "cut" else ""
    return told + end


def explain_next(step: Step) -> str:
    """A sentence or two on the target's own token."""
    own, after = step.next_token, _name(step.nodes[path_end(step)])
    below = [node for node in step.nodes if node.parent == path_end(step)]
    if own.origin == "residual":
        rest = [node.decision.residual_mass for node in below if node.decision and node.decision.residual_mass]
        left = f", {prob_fine(rest[-1])} of its mass" if rest else ""
        how = f"The drafts after {after} were rejected: drawn from what they left of the target's distribution{left}."
    else:
        lead = "No draft stood" if not below else "No draft was taken"
        choice = "its first choice" if own.origin == "argmax" else "drawn from its distribution as processed,"
        how = f"{lead} after {after}: the target's own token, {choice} with probability {prob_fine(own.probability)}."
        if own.origin == "argmax":
            how += f" It leads the second best by {logits(own.margin)} in logits."
    more = unsaid(step).removeprefix("; ")
    return f"{how} {more[0].upper()}{more[1:]}." if more else how


def _name(node: Node) -> str:
    return "the root" if node.parent is None else quoted(node.text, WIDEST)


def _parent(step: Step, node: Node) -> Node:
    return step.nodes[node.parent or 0]


def _judged(step: Step, node: Node, decision: Decision) -> str:
    """By the rule that weighed it; empty where the record lacks what the rule goes by."""
    passed = decision.accepted if decision.accepted is not None else node.status == "accepted"
    verdict = "Accepted" if node.status == "accepted" else "It passed, but another path won" if passed else "Rejected"
    if decision.rule == "block match" and node.status != "accepted":
        words = reason(step, node)
        return f"{words[0].upper()}{words[1:]}: nothing of the block is kept in this step."
    if decision.draw is not None and decision.ratio is not None:
        return _trial(decision, verdict, passed)
    target = node.target_prob if decision.target_prob is None else decision.target_prob
    if decision.threshold is not None:
        sign = "over" if passed else "not over"
        after = "" if decision.entropy is None else f", which follows from an entropy of {decision.entropy:.2f} nats"
        return (
            f"{verdict}: the target's {prob_fine(target)} is {sign} the threshold {prob_fine(decision.threshold)}"
            + (f"{after}.{_rather(step, node) if passed else ''}")
        )
    if decision.top_k is not None:
        place = place_of(step, node)
        where = f"it is number {place} for the target" if place is not None else "it is not among the target's best"
        return f"{verdict}: {where} ({prob_fine(target)}), and the best {decision.top_k} pass." + (
            _rather(step, node) if passed else ""
        )
    return _match(step, node, decision, verdict) if decision.wanted is not None else ""


def _trial(decision: Decision, verdict: str, passed: bool) -> str:
    """Speculative sampling: both probabilities, their ratio, the draw, the residual."""
    ratio = f"target {prob_fine(decision.target_prob)} / drafter {prob_fine(decision.draft_prob)}"
    sign = "under" if passed else "not under"
    told = (
        f"{verdict}: the chance was {prob_fine(decision.ratio)} ({ratio}, at most 1), and the number drawn, "
        f"{prob_fine(decision.draw)}, is {sign} it."
    )
    if decision.residual_mass is not None:
        told += f" {prob_fine(decision.residual_mass)} of the target's distribution is left for what comes instead."
    return told


def _rather(step: Step, node: Node) -> str:
    other = preferred(step, node)
    return "" if other is None else f" Its own first choice was {quoted(other, WIDEST)}."


def _match(step: Step, node: Node, decision: Decision, verdict: str) -> str:
    """The target's token here, against the draft."""
    parent = _parent(step, node)
    how = "draws" if decision.rule == "sample match" else "chooses"
    if decision.wanted == node.token_id:
        if node.status != "accepted":
            return f"It agrees with the target after {_name(parent)}, but a draft before it does not."
        return f"{verdict}: after {_name(parent)} the target {how} this very token ({prob_fine(node.target_prob)})."
    wanted = next((best for best in parent.target_top if best.token_id == decision.wanted), None)
    text = wanted.text if wanted is not None else taken_after(step, parent.id)
    named = "another token" if text is None else quoted(text, WIDEST)
    against = (
        f"{prob_fine(wanted.prob)} against {prob_fine(node.target_prob)}" if wanted else prob_fine(node.target_prob)
    )
    lead = "Not reached, and wrong here" if node.status == "unreached" else verdict
    return f"{lead}: after {_name(parent)} the target {how} {named} ({against})."


def _unjudged(step: Step, node: Node) -> str:
    """Where no rule said anything of it."""
    parent = _parent(step, node)
    if node.status == "unreached":
        lost = parent
        while lost.parent is not None and lost.status == "unreached":
            lost = _parent(step, lost)
        whose = "its parent" if lost is parent else "further up,"
        return (
            f"Never judged: {whose} {_name(lost)} was not taken. The pass computed this row all the same, and it was "
            "dropped."
        )
    taken = taken_after(step, parent.id)
    if node.status == "rejected" and taken is not None:
        tried = parent.id in on_path(step) and parent.id != path_end(step)
        why = f"its sibling {quoted(taken, WIDEST)} was taken" if tried else f"the target takes {quoted(taken, WIDEST)}"
        return f"Not taken: after {_name(parent)} {why} ({prob_fine(node.target_prob)} for this one)."
    words = reason(step, node)
    return f"{words[0].upper()}{words[1:]}."
