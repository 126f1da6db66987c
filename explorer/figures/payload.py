"""What a method recorded that no view here knows: shown as it is, so that a new method is never a blank page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, payload_known, step_name
from explorer.figures.labels import plural, visible
from explorer.figures.tables import cell, more_row
from explorer.figures.theme import Theme
from explorer.trace import Step

MOST = 40
"""Rows shown."""
WIDEST = 160
"""Characters of a value."""
DEEPEST = 3
"""Levels that get rows of their own; what is nested deeper is shown as JSON."""


def entries(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Names and values, nested names joined with dots, in the order recorded."""
    if isinstance(value, dict) and value and depth < DEEPEST:
        for key, inner in value.items():
            yield from entries(inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list | tuple) and value and depth < DEEPEST and not _flat(value):
        for place, inner in enumerate(value):
            yield from entries(inner, f"{name}.{place}", depth + 1)
    elif isinstance(value, str):
        yield name, value
    else:
        yield name, json.dumps(value, ensure_ascii=False, default=str)


def _flat(values: Any) -> bool:
    """A list of plain values stays in one row."""
    return all(not isinstance(value, dict | list | tuple) for value in values)


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One row an entry."""
    found = list(entries({name: value for name, value in (step.payload or {}).items() if name != "kind"}))
    rows = [
        [cell(visible(name, 60), "soft"), cell(visible(text, WIDEST).replace("␣", " "), m=True)]
        for name, text in found[:MOST]
    ]
    if len(found) > MOST:
        rows.append(more_row(len(found) - MOST, 2))
    kind = visible(str((step.payload or {}).get("kind", "unknown")), 40)
    caption = f'Recorded by the method, kind "{kind}".'
    return {"caption": caption, "rows": rows, "alt": f"{plural(len(found), 'recorded value')} of {step_name(step)}."}


PAYLOAD = View(
    name="payload",
    title="Recorded",
    label="What the method recorded in this step.",
    kind="table",
    applies=lambda step: step.payload is not None and not payload_known(step),
    build=build,
    columns=lambda header, steps: ["name", "value"],
)
