"""What a view is: a description that says which steps it shows and how to build their pictures.

A view of kind "plotly" builds `{data, layout, alt, min_width}` per step, a "table" `{caption, rows, alt}`, a
"text" `{caption, lines, alt}`; docs/design/reel.md is the contract with the player.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from explorer.events import LaneHeader
from explorer.figures.theme import Theme
from explorer.payloads import (
    DraftModelPayload,
    EaglePayload,
    JacobiPayload,
    LookaheadPayload,
    MedusaPayload,
    PromptLookupPayload,
)
from explorer.runs import Run
from explorer.trace import Record, Step

Json = dict[str, Any]
Known = TypeVar("Known", bound=Record)

SHOWN: tuple[type[Record], ...] = (
    MedusaPayload,
    EaglePayload,
    LookaheadPayload,
    DraftModelPayload,
    PromptLookupPayload,
    JacobiPayload,
)
"""Payloads that a view here shows."""

NEXT = "next"
"""Id of the target's own token in pictures; drafted nodes have their numbers."""

CONFIG: Mapping[str, Any] = {"displayModeBar": False, "responsive": True, "doubleClick": False}


def no_layout(theme: Theme) -> Json:
    """For tables."""
    return {}


def no_columns(header: LaneHeader, steps: Sequence[Step]) -> list[str]:
    """For pictures."""
    return []


def nothing_more(header: LaneHeader, lane: Sequence[Step]) -> Json:
    """For views whose steps share no more than their layout or columns."""
    return {}


def no_roles(step: Step) -> Iterable[str]:
    """For views whose legend is always the same."""
    return ()


@dataclass(frozen=True)
class View:
    """A picture or table of one step."""

    name: str
    title: str
    label: str
    """What the picture shows, in a sentence."""
    kind: Literal["plotly", "table", "text", "details", "code", "drafts"]
    applies: Callable[[Step], bool]
    build: Callable[[LaneHeader, Step, Theme], Json]
    layout: Callable[[Theme], Json] = no_layout
    """The part of the layout that all steps share."""
    columns: Callable[[LaneHeader, Sequence[Step]], list[str]] = no_columns
    legend: tuple[str, ...] = ()
    """Roles to explain under the picture."""
    rare: Callable[[Step], Iterable[str]] = no_roles
    """Roles to explain only in lanes that have them: those of one step."""
    story: Callable[[LaneHeader, Sequence[Step], Theme], Json] | None = None
    """In place of `build` where a picture needs the steps before it: the lane's steps up to the one to draw."""
    place: Literal["tab", "aside"] = "tab"
    """Among the lane's views, or beside them: an aside is always in sight, and the player has a part for its kind."""
    common: Callable[[LaneHeader, Sequence[Step]], Json] = nothing_more
    """Of an aside: what all steps of the lane so far share."""

    def picture(self, header: LaneHeader, steps: Sequence[Step], theme: Theme) -> Json:
        """Of the last of these steps; the others come before it in its lane."""
        if self.story is not None:
            return self.story(header, steps, theme)
        return self.build(header, steps[-1], theme)


@dataclass(frozen=True)
class Overview:
    """A picture of the whole comparison."""

    name: str
    title: str
    label: str
    axes: tuple[str, ...]
    """What the horizontal axis may be; the first is the default."""
    build: Callable[[Run, Theme, str], Json]
    """Gives {data, layout, cursor, alt, min_width}."""


def payload_as(step: Step, model: type[Known]) -> Known | None:
    """The step's payload with types; None where it has none, or one of another kind, or one that cannot be read."""
    if step.payload is None or step.payload.get("kind") != model.model_fields["kind"].default:
        return None
    try:
        return model.model_validate(step.payload)
    except ValidationError:
        return None


def payload_known(step: Step) -> bool:
    """Does a view here show the step's payload?"""
    return any(payload_as(step, model) is not None for model in SHOWN)


def drafts_committed(step: Step) -> int:
    """How many accepted drafts reached the output (the end of the output may cut some off)."""
    return min(len(step.accepted), len(step.committed))


def next_committed(step: Step) -> bool:
    """Did the target's own token reach the output?"""
    return len(step.committed) > len(step.accepted)


def path_end(step: Step) -> int:
    """Id of the node after which the target's own token stands."""
    return step.accepted[-1] if step.accepted else 0


def step_name(step: Step) -> str:
    """As the page counts: from one."""
    return f"step {step.index + 1}"
