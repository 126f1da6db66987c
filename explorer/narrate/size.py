"""Lanes whose size is `auto`: how much they drafted in a step, and why."""

from __future__ import annotations

from explorer.figures.labels import plural
from explorer.narrate.words import Piece
from explorer.trace import SizeChoice, Step


def about_size(step: Step) -> list[Piece]:
    """A sentence behind the method's own; nothing where the size is fixed."""
    size = step.size
    if size is None:
        return []
    if size.nodes:
        return [["", _drafted(size)]]
    return [["", _declined(size)]]


def _drafted(size: SizeChoice) -> str:
    why = " Auto size, trying out: " if size.probing else " Auto size: "
    rows = 1 + size.nodes + size.branch_tokens
    return (
        f"{why}a step over {plural(rows, 'row')} costs {_passes(size.expected_ms, size)} "
        f"and was expected to give {size.expected_tokens:.1f} tokens."
    )


def _declined(size: SizeChoice) -> str:
    other = size.declined
    what = "nothing was drafted" if not size.depth else "no draft was worth verifying"
    if other is None:
        return f" Auto size: {what}." if size.branch_tokens == 0 else ""
    return (
        f" Auto size: {what}, for a step over {plural(other.rows, 'row')} costs {_passes(other.expected_ms, size)}, "
        f"and the drafts are worth {max(other.expected_tokens - 1.0, 0.0):.1f} tokens."
    )


def _passes(milliseconds: float, size: SizeChoice) -> str:
    return f"{milliseconds / size.plain_ms:.1f} plain passes" if size.plain_ms else "an unknown time"
