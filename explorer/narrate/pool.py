"""Lookahead: what the pool knew, and what the window gave to it."""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.figures.labels import count_word, plural
from explorer.figures.reasons import branch_role
from explorer.narrate.drafts import agreement
from explorer.narrate.words import Piece, gain, token, tokens
from explorer.payloads import LookaheadPayload
from explorer.trace import Step


def about_pool(header: LaneHeader, step: Step, payload: LookaheadPayload) -> list[Piece]:
    """A step of Lookahead."""
    copied = sum(branch_role(step, node) == "copied" for node in step.nodes[1:])
    own = [["", " the target's next token is "], token(step.next_token.text), *gain(step)]
    if payload.warm_up and not copied:
        return [["", f"{_warm(header, payload)}, and nothing is verified yet;"], *own]
    found = len(payload.guesses)
    if payload.warm_up or copied:
        lead: list[Piece] = [["", f"{_warm(header, payload)}. "]] if payload.warm_up else _knew(payload)
        lead.append(["", f"{plural(copied, 'token')} copied from the context went along. "])
        return [*lead, *agreement(header, step), *gain(step), *_collected(payload)]
    if not found:
        nothing: list[Piece] = [["", "The pool knew nothing that follows "], token(payload.key_text), ["", ";"]]
        return [*nothing, *own, *_collected(payload)]
    return [*_knew(payload), *_pool_agreement(step, found), *gain(step), *_collected(payload)]


def _warm(header: LaneHeader, payload: LookaheadPayload) -> str:
    rows = plural(len(payload.window_after), "row")
    goal = header.params.get("ngram")
    full = f" of {goal - 1}" if isinstance(goal, int) and goal > 1 else ""
    return f"Warm-up: the window now has {rows}{full}"


def _knew(payload: LookaheadPayload) -> list[Piece]:
    found = len(payload.guesses)
    if not found:
        return [["", "The pool knew nothing that follows "], token(payload.key_text), ["", ". "]]
    words = f"{count_word(found)} {'continuation' if found == 1 else 'continuations'}"
    return [["", f"The pool knew {words} of "], token(payload.key_text), ["", ". "]]


def _pool_agreement(step: Step, found: int) -> list[Piece]:
    count = len(step.accepted)
    own = [["", " and its own next token is "], token(step.next_token.text)]
    if not count:
        lead = "The target disagreed with its first token," if found == 1 else "The target agreed with none of them,"
        return [["", lead], *own]
    first = "first token" if count == 1 else f"first {count_word(count)} tokens"
    where = "" if found == 1 else " of the best"
    path = tokens([step.nodes[node].text for node in step.accepted])
    return [["", f"The target agreed with the {first}{where}, "], path, ["", ","], *own]


def _collected(payload: LookaheadPayload) -> list[Piece]:
    """What the window gave to the pool."""
    new, again = len(payload.added), len(payload.refreshed)
    if not new and not again:
        return []
    seen = f" ({again} known already)" if again else ""
    return [["", f" The window gave {plural(new + again, 'n-gram')} to the pool{seen}."]]
