"""Prompt lookup: where the newest tokens stood before, and how much of what followed them came again."""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.figures.labels import plural
from explorer.narrate.drafts import agreement, loser, trial
from explorer.narrate.plain import plainly
from explorer.narrate.words import Piece, gain, token
from explorer.payloads import PromptLookupPayload
from explorer.trace import Step


def about_lookup(header: LaneHeader, step: Step, payload: PromptLookupPayload) -> list[Piece]:
    """The match, then what the target made of the copy."""
    if payload.ngram and not payload.tokens and len(step.nodes) == 1:
        return plainly(step, "The newest tokens stood there before, but no copy was proposed. ")
    if not payload.ngram or not payload.tokens:
        if len(step.nodes) == 1:
            return plainly(step, "The newest tokens do not occur earlier in the context, so nothing was copied. ")
        lead: list[Piece] = [["", "Only the context branch had something to propose. "]]
    else:
        newest = "The newest token" if payload.ngram == 1 else f"The newest {payload.ngram} tokens"
        drafted = len(step.nodes) - 1
        lead = [["", f"{newest}, "], token(payload.matched_text), ["", ", stood there before; what followed then, "
                f"{plural(drafted, 'token')}, was proposed again. "]]  # fmt: skip
    return [*lead, *agreement(header, step), *gain(step), *(trial(step) or loser(step))]
