"""One or two plain sentences per step, from the record alone. A sentence first, pictures second.

A sentence is a list of [kind, text]; kind is "" for plain words, "strong" for the result, "token" for tokens.
"""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.figures.base import payload_as
from explorer.narrate.block import about_block
from explorer.narrate.drafts import about_drafts, best_rejected
from explorer.narrate.lookup import about_lookup
from explorer.narrate.plain import about_plain
from explorer.narrate.pool import about_pool
from explorer.narrate.size import about_size
from explorer.narrate.words import Piece
from explorer.payloads import JacobiPayload, LookaheadPayload, PromptLookupPayload
from explorer.trace import Step

__all__ = ["best_rejected", "narrate"]


def narrate(header: LaneHeader, step: Step) -> list[Piece]:
    """What happened in this step, in words that a student knows."""
    return _joined([*_said(header, step), *about_size(step)])


def _said(header: LaneHeader, step: Step) -> list[Piece]:
    """What the method recorded decides who tells it."""
    pool = payload_as(step, LookaheadPayload)
    if pool is not None:
        return about_pool(header, step, pool)
    block = payload_as(step, JacobiPayload)
    if block is not None:
        return about_block(step, block)
    lookup = payload_as(step, PromptLookupPayload)
    if lookup is not None:
        return about_lookup(header, step, lookup)
    return about_drafts(header, step) if len(step.nodes) > 1 else about_plain(header, step)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one kind become one piece."""
    joined: list[Piece] = []
    for kind, text in pieces:
        if joined and joined[-1][0] == kind:
            joined[-1][1] += text
        elif text:
            joined.append([kind, text])
    return joined
