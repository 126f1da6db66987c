"""Which nodes the views of a step carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from explorer.events import LaneHeader
from explorer.figures import FIGURES
from explorer.trace import Step
from tests.figures.checks import LIGHT


def linked_ids(header: LaneHeader, steps: Sequence[Step]) -> dict[str, set[str]]:
    """By view: the ids that the picture of the last of the steps carries, as the player compares them."""
    found = {}
    for view in FIGURES:
        if view.place == "tab" and view.applies(steps[-1]):
            built = view.picture(header, steps, LIGHT)
            found[view.name] = {str(each) for each in _ids(built) if each is not None}
    return found


def _ids(built: dict[str, Any]) -> Iterator[Any]:
    for trace in built.get("data", []):
        for entry in trace.get("customdata", []):
            if trace["type"] == "heatmap":
                yield from (cell[0] for cell in entry)
            else:
                yield from entry[:2] if built.get("mark") == "cross" else entry[:1]
    for row in built.get("rows", []):
        for cell in row:
            yield from (cell.get("node"), *cell.get("lit", []))
    for line in built.get("lines", []):
        yield from (piece.get("node") for piece in line["pieces"])
