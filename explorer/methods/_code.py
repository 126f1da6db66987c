"""Pseudocode of a lane: what a method says of itself, and what is the same for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from explorer.acceptance.code import rule_code
from explorer.events import CodeLine

PHASES = ("prefill", "drafter-prefill", "draft", "verify", "accept", "commit")
"""In the order in which they run."""


def shared_lines(params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
    """Lines of the loop that every method goes through (explorer/decode.py)."""
    branch = params.get("context_branch")
    copied = isinstance(branch, int) and branch > 0
    return (
        CodeLine("prefill", "read the prompt with the target; root ← its first token"),
        *((CodeLine("draft", f"add up to {branch} tokens copied from the context", "copied"),) if copied else ()),
        CodeLine("verify", "p ← target(root, drafts) in one pass, by the tree mask"),
        *rule_code(params),
        CodeLine("commit", "output ← output, accepted drafts, next", "committed"),
        CodeLine("commit", "cache ← the rows of root and accepted drafts; root ← next", "committed"),
    )


def joined(own: Iterable[CodeLine], shared: Iterable[CodeLine]) -> tuple[CodeLine, ...]:
    """Phase by phase. What a method says of prefill, verification or acceptance stands in place of the shared
    lines; its draft comes before them, its lesson from the commit after them."""
    own, shared = tuple(own), tuple(shared)
    lines: list[CodeLine] = []
    for phase in dict.fromkeys([*PHASES, *(line.phase for line in own)]):
        mine = [line for line in own if line.phase == phase]
        theirs = [line for line in shared if line.phase == phase]
        if phase == "draft":
            lines += [*mine, *theirs]
        elif phase == "commit":
            lines += [*theirs, *mine]
        else:
            lines += mine or theirs
    return tuple(lines)


def said(params: Mapping[str, Any], name: str) -> str:
    """A parameter's value in a line, or its name: a recorded file may hold anything."""
    value = params.get(name)
    return str(value)[:12] if isinstance(value, int | float | str) and not isinstance(value, bool) else name
