"""Whatever proposes candidates: draft model, Medusa, EAGLE, and what the acceptance rule made of them."""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.figures.base import payload_as
from explorer.figures.labels import count_word, plural
from explorer.figures.reasons import branch_role, first_choice, on_path, place_of, preferred
from explorer.narrate.words import Piece, gain, share, token, tokens
from explorer.payloads import DraftModelPayload, EaglePayload
from explorer.trace import Node, Step

SURE = 0.5
"""From here on it is worth saying how much the drafter believed in a guess that was rejected."""


def about_drafts(header: LaneHeader, step: Step) -> list[Piece]:
    """Who guessed, what was accepted, and why the next one was not."""
    said = [*_guessed(header, step), *agreement(header, step), *gain(step)]
    return [*said, *(_lossy(header, step) or _uncovered(step) or trial(step) or loser(step))]


def _uncovered(step: Step) -> list[Piece]:
    """A drafter with a vocabulary of its own can never propose the tokens that it leaves out."""
    payload = payload_as(step, EaglePayload)
    if payload is None or payload.covered is not False or payload.draft_vocabulary is None:
        return []
    return [["", " The drafter could not have proposed "], token(step.next_token.text),
            ["", f": it is not among its {payload.draft_vocabulary:,} tokens."]]  # fmt: skip


def _guessed(header: LaneHeader, step: Step) -> list[Piece]:
    """The drafter, and what the context added."""
    copied = sum(branch_role(step, node) == "copied" for node in step.nodes[1:])
    own = len(step.nodes) - 1 - copied
    root = token(step.nodes[0].text)
    if not own:
        return [["", f"From the context {plural(copied, 'token')} went below "], root, ["", ". "]]
    extra = [["", f", and {plural(copied, 'token')} came from the context"]] if copied else []
    chain = payload_as(step, DraftModelPayload)
    if chain is not None:
        return [["", f"The draft model wrote {plural(own, 'token')} after "], root, *extra, ["", ". "]]
    who = "The heads" if header.method == "medusa" else "The drafter"
    return [["", f"{who} guessed {plural(own, 'token')} below "], root, *extra, ["", ". "]]


def agreement(header: LaneHeader, step: Step) -> list[Piece]:
    """What the target accepted, and its own token; no full stop yet."""
    count = len(step.accepted)
    own = step.next_token
    verb = {"argmax": "is", "sample": "was drawn as", "residual": "was drawn from what was left, as"}[own.origin]
    if not count:
        lead = _disagreed(step)
        return [["", f"The target {lead}; its own next token {verb} "], token(own.text)]
    agreed = "agreed with" if header.lossless and _all_first(step) else "accepted"
    path = [step.nodes[node].text for node in step.accepted]
    if count == 1:
        said = [["", f"The target {agreed} "], token(path[0])]
    else:
        said = [["", f"The target {agreed} the {count_word(count)} along "], tokens(path)]
    if not any(node.parent == step.accepted[-1] for node in step.nodes):
        said.append(["", ", to the end of the branch"])
    return [*said, ["", f", and its own next token {verb} "], token(own.text)]


def _disagreed(step: Step) -> str:
    single = len(step.nodes) == 2
    if any(node.decision is not None and node.decision.draw is not None for node in step.nodes):
        return "did not accept it" if single else "accepted none of them"
    return "did not agree with it" if single else "agreed with none of them"


def _all_first(step: Step) -> bool:
    """Was every accepted draft the target's first choice? Under sampling and lossy rules it need not be."""
    return all(first_choice(step, step.nodes[node]) for node in step.accepted)


def _lossy(header: LaneHeader, step: Step) -> list[Piece]:
    """Under a rule that is not lossless: the first accepted draft that plain decoding would not have written."""
    if header.lossless:
        return []
    for node in (step.nodes[place] for place in step.accepted):
        rather = preferred(step, node)
        if rather is not None:
            return [
                ["", " It accepted "],
                token(node.text),
                ["", " though it preferred "],
                token(rather),
                ["", _why(step, node)],
            ]
    return []


def _why(step: Step, node: Node) -> str:
    """What the lossy rule held against it."""
    decision = node.decision
    if decision is not None and decision.threshold is not None and decision.target_prob is not None:
        return f": its {share(decision.target_prob)} is over the threshold of {share(decision.threshold)}."
    if decision is not None and decision.top_k is not None:
        place = place_of(step, node)
        where = f"it is in place {place}" if place is not None else "it is among them"
        return f": the {decision.top_k} best pass, and {where}."
    return "."


def trial(step: Step) -> list[Piece]:
    """The trial that ended the path, where a number was drawn."""
    failed = next((node for node in _judged(step) if _lost(node)), None)
    if failed is None or failed.decision is None:
        return []
    decision = failed.decision
    if decision.draw is None or decision.ratio is None:
        return []
    said = [["", " The trial of "], token(failed.text),
            ["", f" failed: it drew {share(decision.draw)}, not under the ratio {share(decision.ratio)}"]]  # fmt: skip
    if decision.residual_mass is not None:
        said.append(["", f", which left {share(decision.residual_mass)} of the target's distribution"])
    return [*said, ["", "."]]


def _judged(step: Step) -> list[Node]:
    """Rejected drafts, those at the end of the path first: they are why it ended."""
    rejected = [node for node in step.nodes if node.status == "rejected" and node.parent in on_path(step)]
    return sorted(rejected, key=lambda node: (-node.depth, node.id))


def _lost(node: Node) -> bool:
    return node.decision is not None and node.decision.draw is not None and not node.decision.accepted


def loser(step: Step) -> list[Piece]:
    """The rejected draft that the drafter believed in most, where the target's opinion of it is known."""
    node = best_rejected(step)
    if node is None or node.target_prob is None:
        return []
    taken = next((step.nodes[other] for other in step.accepted if step.nodes[other].parent == node.parent), None)
    if taken is not None and any(step.nodes[other].text == node.text for other in step.accepted):
        lead: list[Piece] = [["", " Beside "], token(taken.text), ["", " the guess "]]
    elif taken is not None:
        lead = [["", " The sibling "]]
    elif node.parent:
        lead = [["", " After "], token(step.nodes[node.parent].text), ["", " the guess "]]
    else:
        lead = [["", " The guess "]]
    verdict = f"the target gives it {share(_weighed(node))}"
    if node.decision is not None and node.decision.threshold is not None:
        verdict += f", not over the threshold of {share(node.decision.threshold)}"
    if node.draft_prob is not None and node.draft_prob >= SURE:
        verdict = f"the drafter gave it {share(node.draft_prob)}, {verdict}"
    return [*lead, token(node.text), ["", f" was rejected: {verdict}."]]


def _weighed(node: Node) -> float:
    """The target's probability as the rule saw it."""
    seen = node.decision.target_prob if node.decision is not None else None
    return (node.target_prob or 0.0) if seen is None else seen


def best_rejected(step: Step) -> Node | None:
    """Of all judged and rejected drafts the likeliest to the drafter; the first where it gave no probabilities.

    A draft that passed its rule, but lost to a longer path, was not rejected."""
    rejected = [node for node in step.nodes if node.status == "rejected" and node.parent in on_path(step)]
    rejected = [node for node in rejected if node.decision is None or not node.decision.accepted]
    return max(rejected, key=lambda node: (node.draft_prob or 0.0, -node.id), default=None)
