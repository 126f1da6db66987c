"""The drafts of a step and nothing of what became of them: what a viewer sees who guesses how many are accepted."""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, step_name
from explorer.figures.labels import plural, visible
from explorer.figures.theme import Theme
from explorer.trace import Step

LIMIT = 24
"""Characters of a token's text."""


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """The root's text, every draft as [id, parent, text], and how deep they go."""
    deepest = max(node.depth for node in step.nodes)
    return {
        "root": visible(step.nodes[0].text, LIMIT),
        "nodes": [[node.id, node.parent, visible(node.text, LIMIT)] for node in step.nodes[1:]],
        "deepest": deepest,
        "alt": f"{plural(len(step.nodes) - 1, 'draft')} of {step_name(step)}, {deepest} deep.",
    }


DRAFTS = View(
    name="drafts",
    title="Drafts",
    label="The candidate tree before the target has judged it.",
    kind="drafts",
    applies=lambda step: len(step.nodes) > 1,
    build=build,
    place="aside",
)
