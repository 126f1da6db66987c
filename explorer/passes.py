"""What a step says of its target pass: how many rows it had, and what became of them in the cache.

The pass writes one row per node behind the cached ones, root first; the commit keeps the rows of the root and of the
accepted drafts that reached the output. The target's own token is not cached yet: it is the next step's root.
"""

from __future__ import annotations

from pydantic import ValidationError

from explorer.payloads import LookaheadPayload
from explorer.trace import Step


def window_rows(step: Step) -> int:
    """Rows that rode in the same pass without being nodes: Lookahead's window (arXiv 2402.02057, section 3)."""
    if step.payload is None or step.payload.get("kind") != "lookahead":
        return 0
    try:
        payload = LookaheadPayload.model_validate(step.payload)
    except ValidationError:
        return 0
    return sum(map(len, payload.window_before))


def pass_rows(step: Step) -> int:
    """All rows of the step's target pass."""
    return len(step.nodes) + window_rows(step)


def kept_nodes(step: Step) -> tuple[int, ...]:
    """Nodes whose rows stay in the cache, in order: none where the step added nothing to the output."""
    return (0, *step.accepted[: len(step.committed) - 1]) if step.committed else ()


def cached_before(step: Step) -> int:
    """Positions in the cache when the pass began. Never negative, whatever a file says."""
    return max(step.cache_length - len(kept_nodes(step)), 0)


def ancestors(step: Step) -> list[list[int]]:
    """Per node the nodes that its row attends to, besides the cache: its ancestors and itself, root first."""
    seen: list[list[int]] = []
    for node in step.nodes:
        seen.append([*(seen[node.parent] if node.parent is not None else ()), node.id])
    return seen
