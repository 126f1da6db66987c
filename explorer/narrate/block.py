"""Jacobi decoding: how far the block has settled."""

from __future__ import annotations

from explorer.figures.jacobi import settled
from explorer.figures.labels import count_word, plural
from explorer.narrate.words import Piece, gain, token, tokens
from explorer.payloads import JacobiPayload
from explorer.trace import Step


def about_block(step: Step, payload: JacobiPayload) -> list[Piece]:
    """A pass over the block: what is settled, what changed, what was kept."""
    size = len(payload.outputs)
    if size < 2:
        return [["", "The block is down to its root: the target's next token is "],
                token(step.next_token.text), *gain(step)]  # fmt: skip
    count = payload.iteration + 1
    lead = f"Pass {count} on this block: "
    known = f"{settled(payload)} of {plural(size, 'position')} settled"
    if not step.committed:
        return [["", lead], ["strong", known], ["", ", nothing committed yet. "], *_changes(payload)]
    if payload.verification == "block":
        agrees = (
            f"{lead}the whole block agrees with the target after {plural(count, 'pass', 'passes')}. All of it counts"
        )
        return [["", f"{agrees} now, and the target's next token is "], token(step.next_token.text), *gain(step)]
    return [["", lead], *_stand(step), *gain(step), ["", " "], *_changes(payload)]


def _stand(step: Step) -> list[Piece]:
    """Which guesses were right, and the target's token behind them."""
    agreed = [step.nodes[node].text for node in step.accepted]
    own = token(step.next_token.text)
    if not agreed:
        return [["", "the first guess was wrong; the target puts "], own, ["", " there"]]
    if len(agreed) == 1:
        return [["", "the guess "], token(agreed[0]), ["", " stands, and the target puts "], own, ["", " after it"]]
    several = [["", f"the {count_word(len(agreed))} guesses "], tokens(agreed), ["", " stand, and the target puts "]]
    return [*several, own, ["", " after them"]]


def _changes(payload: JacobiPayload) -> list[Piece]:
    """What the pass did to the guesses that are still open."""
    pairs = zip(payload.block[1:], payload.outputs[:-1], strict=False)
    open_guesses = list(pairs)[payload.fixed :]
    changed = sum(before.token_id != after.token_id for before, after in open_guesses)
    if not open_guesses:
        return [["", "No guess is left open."]]
    still = "the one guess" if len(open_guesses) == 1 else f"the {count_word(len(open_guesses))} guesses"
    if changed == len(open_guesses):
        how = "it changed" if changed == 1 else "all changed"
    else:
        how = "it did not change" if len(open_guesses) == 1 else f"{count_word(changed)} changed"
    return [["", f"Of {still} behind, {how}." if len(open_guesses) > 1 else f"One guess is left behind; {how}."]]
