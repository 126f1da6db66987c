"""One or two plain sentences per step, from the record alone. A sentence first, pictures second.

A sentence is a list of [kind, text]; kind is "" for plain words, "strong" for the result, "token" for tokens.
"""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.figures.base import payload_as
from explorer.figures.labels import count_word, plural, prob, quoted
from explorer.figures.reasons import first_choice, on_path
from explorer.payloads import LookaheadPayload
from explorer.trace import Node, Step

SURE = 0.5
"""From here on it is worth saying how much the drafter believed in a guess that was rejected."""

Piece = list[str]
"""[kind, text]"""


def narrate(header: LaneHeader, step: Step) -> list[Piece]:
    """What happened in this step, in words that a student knows."""
    payload = payload_as(step, LookaheadPayload)
    if payload is not None:
        said = _lookahead(header, step, payload)
    elif len(step.nodes) > 1:
        said = _tree(header, step)
    else:
        said = _plain(header, step)
    return _joined(said)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one kind become one piece."""
    joined: list[Piece] = []
    for kind, text in pieces:
        if joined and joined[-1][0] == kind:
            joined[-1][1] += text
        elif text:
            joined.append([kind, text])
    return joined


def _share(value: float) -> str:
    """A probability in running text."""
    return prob(value).replace("<", "under ")


def _token(text: str) -> Piece:
    return ["token", quoted(text)]


def _gain(step: Step) -> list[Piece]:
    """The result of a step, to follow the target's own token: how much the output grew, and whether it ended."""
    if not step.committed:
        return [["", "; nothing was added to the output yet."]]
    gain = ["strong", f"{plural(len(step.committed), 'token')} from one pass"]
    left = len(step.accepted) + 1 - len(step.committed)
    if left <= 0:
        return [["", ": "], gain, ["", "."]]
    rest = "the last one was" if left == 1 else f"the last {count_word(left)} were"
    return [["", ". The output ended here, with "], gain, ["", f": {rest} not needed."]]


# Plain decoding, and any step without drafts


def _plain(header: LaneHeader, step: Step) -> list[Piece]:
    if not step.committed:
        return [["", "This pass added nothing to the output yet: the target's next token would be "],
                _token(step.next_token.text), ["", "."]]  # fmt: skip
    how = {"argmax": "its most likely next token is ", "sample": "drew ", "residual": "drew, after a rejection, "}
    own = step.next_token
    start = "Nothing was drafted. " if header.method != "autoregressive" else ""
    said = [["", f"{start}The target read "], _token(step.nodes[0].text), ["", f" and {how[own.origin]}"],
            _token(own.text), ["", f" ({_share(own.probability)})"], *_gain(step)]  # fmt: skip
    runner = next((top for top in step.nodes[0].target_top if top.token_id != own.token_id), None)
    if runner is not None:
        word = "The runner-up" if own.origin == "argmax" else "Among the others"
        said += [["", f" {word} "], _token(runner.text), ["", f" got {_share(runner.prob)}."]]
    return said


# Tree drafters: Medusa, EAGLE, and whatever proposes candidates


def _tree(header: LaneHeader, step: Step) -> list[Piece]:
    drafted = len(step.nodes) - 1
    who = "The heads" if header.method == "medusa" else "The drafter"
    said = [["", f"{who} guessed {plural(drafted, 'token')} below "], _token(step.nodes[0].text), ["", ". "]]
    return [*said, *_agreement(step, drafted), *_gain(step), *_loser(step)]


def _agreement(step: Step, drafted: int) -> list[Piece]:
    """What the target accepted, and its own token; no full stop yet."""
    count = len(step.accepted)
    own = step.next_token
    verb = "is" if own.origin == "argmax" else "was drawn as"
    if not count:
        lead = "did not agree with it" if drafted == 1 else "agreed with none of them"
        return [["", f"The target {lead}; its own next token {verb} "], _token(own.text)]
    agreed = "agreed with" if _all_first(step) else "accepted"
    path = [step.nodes[node].text for node in step.accepted]
    if count == 1:
        said = [["", f"The target {agreed} "], _token(path[0])]
    else:
        said = [["", f"The target {agreed} the {count_word(count)} along "],
                ["token", " → ".join(quoted(text) for text in path)]]  # fmt: skip
    if not any(node.parent == step.accepted[-1] for node in step.nodes):
        said.append(["", ", to the end of the branch"])
    return [*said, ["", f", and its own next token {verb} "], _token(own.text)]


def _all_first(step: Step) -> bool:
    """Was every accepted draft the target's first choice? Under lossy rules it need not be."""
    return all(first_choice(step, step.nodes[node]) for node in step.accepted)


def _loser(step: Step) -> list[Piece]:
    """The rejected draft that the drafter believed in most, where the target's opinion of it is known."""
    node = best_rejected(step)
    if node is None or node.target_prob is None:
        return []
    taken = next((step.nodes[other] for other in step.accepted if step.nodes[other].parent == node.parent), None)
    if taken is not None and any(step.nodes[other].text == node.text for other in step.accepted):
        lead: list[Piece] = [["", " Beside "], _token(taken.text), ["", " the guess "]]
    elif taken is not None:
        lead = [["", " The sibling "]]
    elif node.parent:
        lead = [["", " After "], _token(step.nodes[node.parent].text), ["", " the guess "]]
    else:
        lead = [["", " The guess "]]
    verdict = f"the target gives it {_share(node.target_prob)}"
    if node.draft_prob is not None and node.draft_prob >= SURE:
        verdict = f"the drafter gave it {_share(node.draft_prob)}, {verdict}"
    return [*lead, _token(node.text), ["", f" was rejected: {verdict}."]]


def best_rejected(step: Step) -> Node | None:
    """Of all judged and rejected drafts the likeliest to the drafter; the first where it gave no probabilities."""
    rejected = [node for node in step.nodes if node.status == "rejected" and node.parent in on_path(step)]
    return max(rejected, key=lambda node: (node.draft_prob or 0.0, -node.id), default=None)


# Lookahead


def _lookahead(header: LaneHeader, step: Step, payload: LookaheadPayload) -> list[Piece]:
    own = [["", " the target's next token is "], _token(step.next_token.text), *_gain(step)]
    if payload.warm_up:
        rows = plural(len(payload.window_after), "row")
        goal = header.params.get("ngram")
        full = f" of {goal - 1}" if isinstance(goal, int) and goal > 1 else ""
        return [["", f"Warm-up: the window now has {rows}{full}, and nothing is verified yet;"], *own]
    found = len(payload.guesses)
    if not found:
        return [
            ["", "The pool knew nothing that follows "],
            _token(payload.key_text),
            ["", ";"],
            *own,
            *_collected(payload),
        ]
    said = [["", f"The pool knew {_continuations(found)} of "], _token(payload.key_text), ["", ". "]]
    said += _pool_agreement(step, found)
    return [*said, *_gain(step), *_collected(payload)]


def _continuations(found: int) -> str:
    return f"{count_word(found)} {'continuation' if found == 1 else 'continuations'}"


def _pool_agreement(step: Step, found: int) -> list[Piece]:
    count = len(step.accepted)
    own = [["", " and its own next token is "], _token(step.next_token.text)]
    if not count:
        lead = "The target disagreed with its first token," if found == 1 else "The target agreed with none of them,"
        return [["", lead], *own]
    path = " → ".join(quoted(step.nodes[node].text) for node in step.accepted)
    first = "first token" if count == 1 else f"first {count_word(count)} tokens"
    where = "" if found == 1 else " of the best"
    return [["", f"The target agreed with the {first}{where}, "], ["token", path], ["", ","], *own]


def _collected(payload: LookaheadPayload) -> list[Piece]:
    """What the window gave to the pool."""
    new, again = len(payload.added), len(payload.refreshed)
    if not new and not again:
        return []
    seen = f" ({again} known already)" if again else ""
    return [["", f" The window gave {plural(new + again, 'n-gram')} to the pool{seen}."]]
