"""Where a node of a step stands in the output, and what comes before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.errors import ExplorerError
from explorer.figures.base import NEXT, path_end
from explorer.trace import NextToken, Node, Step, TopToken, Trace


@dataclass(frozen=True)
class Place:
    """A place in the output, or on a branch of the candidate tree that was not taken."""

    before: tuple[int, ...]
    """All tokens of the output before it."""
    token_id: int
    text: str
    instead: tuple[TopToken, ...]
    """The target's best tokens for it, where that is recorded."""


def place_of(trace: Trace, step_index: int, node: int | str) -> Place:
    """Where a node of a step stands. ExplorerError where there is none."""
    if not 0 <= step_index < len(trace.steps):
        raise ExplorerError(f"The lane has {len(trace.steps)} steps; there is no step {step_index + 1}.")
    step = trace.steps[step_index]
    output = [token.id for token in trace.tokens]
    start = sum(token.step is None or token.step < step_index for token in trace.tokens)
    if start < 1:
        raise ExplorerError("The recording does not hold the tokens before this step.")
    if node == 0:
        root = step.nodes[0]
        return Place(tuple(output[: start - 1]), root.token_id, root.text, _before_root(trace.steps[:step_index]))
    chosen: Node | NextToken
    if node == NEXT:
        chosen, above = step.next_token, path_end(step)
    elif isinstance(node, int) and 0 < node < len(step.nodes):
        chosen, above = step.nodes[node], step.nodes[node].parent or 0
    else:
        raise ExplorerError("The step has no such node.")
    before = (*output[:start], *(step.nodes[each].token_id for each in _path(step, above)))
    return Place(before, chosen.token_id, chosen.text, step.nodes[above].target_top)


def _path(step: Step, node: int) -> list[int]:
    """The nodes from below the root down to this one."""
    path: list[int] = []
    at: int | None = node
    while at:
        path.append(at)
        at = step.nodes[at].parent
    return path[::-1]


def _before_root(earlier: Sequence[Step]) -> tuple[TopToken, ...]:
    """The target's best tokens where the root was decided; none for the first token, which prefill gave."""
    step = next((step for step in reversed(earlier) if step.committed), None)
    return step.nodes[path_end(step)].target_top if step is not None else ()
